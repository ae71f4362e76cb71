"""The database: schema, store, queries, tuning, transfer, and reports made from queries."""

if __name__ != "dropbench.db":
    raise ImportError("`db` is imported as `dropbench.db`")
