"""The regularizer's `rescale` as the last column of the views, which the module of 0004 creates."""

from __future__ import annotations

from alembic import context, op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Create the views anew."""
    for view in ("v_trials", "v_results", "v_curves"):
        op.execute(f"DROP VIEW {view}")
    context.script.get_revision("0004").module.upgrade()
