"""Errors that a user can mend: each is one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dropbench.harness.errors import InputError


@contextmanager
def one_line(match: str | None = None) -> Iterator[pytest.ExceptionInfo[InputError]]:
    """Expect an `InputError` of one line in which a pattern is found."""
    with pytest.raises(InputError, match=match) as caught:
        yield caught
    assert "\n" not in str(caught.value)
