"""Run by Alembic: migrates within the connection and the transaction of `db.schema.upgrade`."""

from alembic import context

from db.schema.tables import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    render_as_batch=True,  # SQLite cannot alter most of a table in place
)
context.run_migrations()
