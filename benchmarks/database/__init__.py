"""The queue, the database and reports at scale, against other stores and fixed limits."""
