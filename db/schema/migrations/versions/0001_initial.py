"""The tables of `dropbench.db.schema.tables` and the views of `dropbench.db.schema.views`, as they are declared there.

Until a release, a change of the schema is a change of those declarations. The first migration after it comes with a
copy of the released declarations here.
"""

from __future__ import annotations

from alembic import op

from dropbench.db.schema.tables import METADATA
from dropbench.db.schema.views import create_views

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables, their indexes and the views."""
    connection = op.get_bind()
    for table in METADATA.tables.values():
        for index in table.indexes:  # a partial index is one on PostgreSQL, too
            index.dialect_options["postgresql"]["where"] = index.dialect_options["sqlite"]["where"]
    METADATA.create_all(connection, checkfirst=False)
    create_views(connection)
