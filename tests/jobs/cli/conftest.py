"""Fixtures of `tests.db` for the commands that show results."""

from tests.db.conftest import call, folder, make_directory, make_trial

__all__ = ["call", "folder", "make_directory", "make_trial"]
