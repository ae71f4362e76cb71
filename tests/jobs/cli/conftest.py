"""Fixtures of `tests.db` for the commands that show results."""

from tests.db.conftest import call, folder, make_trial, template, url

__all__ = ["call", "folder", "make_trial", "template", "url"]
