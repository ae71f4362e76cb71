"""`python -m tests.result_versions.record`: record the numbers of items that are new, or whose version was raised.

With arguments, only of the items with these names, such as ``'regularizer dropkey'``. Numbers that changed with the
versions of libraries (not those of DropBench) are recorded, too: results of different libraries are kept apart.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import dropbench  # noqa: F401 - its shims
from dropbench.harness.files import write_json
from tests.result_versions import cases, numbers


def record(items: Sequence[str]) -> int:
    """Record the numbers of `items`, all if there are none; return 1 if one changed without a raised version."""
    content = numbers.recorded() if numbers.RECORDED.exists() else {}
    libraries, refused = numbers.libraries(), 0
    for item in items or cases.items():
        new = numbers.measure(item)
        old = content.get(item)
        entry: dict[str, Any] = {"versions": numbers.versions_of(item), "case": numbers.case_digest(item)}
        if old is not None and entry.items() <= old.items():
            problem = numbers.problem(item, old, new)
            if problem is None:
                continue
            if old["libraries"] == libraries:
                refused = 1
                print(f"not recorded: {problem}", file=sys.stderr)
                continue
        content[item] = {**entry, "libraries": libraries, "numbers": new}
        print(f"recorded {item}")
    write_json(numbers.RECORDED, {item: content[item] for item in cases.items() if item in content})
    return refused


if __name__ == "__main__":
    sys.exit(record(sys.argv[1:]))
