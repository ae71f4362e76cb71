"""Run by Alembic: migrates within the connection and the transaction of `dropbench.db.schema.upgrade`."""

from alembic import context

from dropbench.db.schema.tables import METADATA

context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA)
context.run_migrations()
