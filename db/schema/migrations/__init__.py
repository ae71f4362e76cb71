"""Alembic's environment for the migrations in `versions`."""
