"""Fixtures of `tests.db` for the commands that show results."""

from tests.db.conftest import call, folder

__all__ = ["call", "folder"]
