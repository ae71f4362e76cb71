"""The process that trains: attempts, retries, stop requests, worker slots."""

from __future__ import annotations


def __getattr__(name: str) -> object:
    """Resolve `jobs.worker.Worker`, the name in the pickles of jobs that an earlier version submitted."""
    if name == "Worker":
        from jobs.worker.worker import Worker

        return Worker
    raise AttributeError(f"module 'jobs.worker' has no attribute '{name}'")
