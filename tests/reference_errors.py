"""Write ``golden/reference_errors.json`` and its table in docs/parity.md: `python -m tests.reference_errors`.

The errors of a regularizer are its largest differences, in values and gradients, from an independent reference in
float64. The tests of the references compute them.
"""

from __future__ import annotations

import json
import sys

import pytest

from dropbench.harness.regularizers import REGULARIZERS
from tests.harness.regularizers.methods import reference
from tests.paths import DOCS, ROOT

FILE = ROOT / "tests" / "golden" / "reference_errors.json"
BEGIN, END = "<!-- begin of reference errors -->", "<!-- end of reference errors -->"


def write() -> int:
    """Run the tests of the references, and write their errors; return the exit code of the tests."""
    folder = ROOT / "tests" / "harness" / "regularizers"
    files = [folder / "methods", folder / "test_presets.py", folder / "learned_dropout" / "test_formulas.py"]
    code = pytest.main(["-q", "-p", "no:cacheprovider", *map(str, files)])
    if code == 0:
        errors = {name: float(f"{reference.ERRORS[name]:.0e}") for name in REGULARIZERS if name in reference.ERRORS}
        FILE.write_text(json.dumps(errors, indent=2) + "\n", encoding="utf-8")
        page = DOCS / "parity.md"
        page.write_text(with_table(page.read_text(encoding="utf-8")), encoding="utf-8")
    return int(code)


def with_table(text: str) -> str:
    """Return the text of docs/parity.md with the table of the stored errors."""
    errors: dict[str, float] = json.loads(FILE.read_text(encoding="utf-8"))
    rows = [f"| `{name}` | {error:.0e} |" for name, error in errors.items()]
    table = "\n".join(["| regularizer | largest difference |", "| --- | --- |", *rows])
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    sys.exit(write())
