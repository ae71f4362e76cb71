"""Benchmarks of the queue, the database and reports at scale, against fixed limits."""
