"""Run by Alembic: migrates within the connection and the transaction of `db.schema.upgrade`."""

from alembic import context

from db.schema.tables import METADATA

context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA)
context.run_migrations()
