"""The clock of records: run directories, the queue and the database store times in this format."""

from __future__ import annotations

from datetime import UTC, datetime


def utc_now_iso() -> str:
    """Return the current time as ISO 8601 in UTC with milliseconds; such times sort as text."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
