"""Standard names: the column `micro_batch_splits` and the metric ``bits-per-byte``."""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Rename the column in place, which no view selects, and the metric in every row."""
    op.execute("ALTER TABLE attempts RENAME COLUMN pieces TO micro_batch_splits")
    op.execute(
        "UPDATE metrics SET name = replace(name, '/bits-a-byte', '/bits-per-byte') "
        "WHERE name LIKE '%/bits-a-byte' OR name LIKE '%/bits-a-byte@%'"
    )
