"""Run by Alembic: migrates over the connection that `db.schema` hands it, in that one's transaction."""

from alembic import context

from db.models import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    render_as_batch=True,  # SQLite cannot alter most of a table in place
)
context.run_migrations()
