"""The database: schema, store, queries, tuning, transfer, and reports made from queries."""
