"""Tables, connections and Alembic migrations."""
