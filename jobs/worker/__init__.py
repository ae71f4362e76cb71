"""The process that trains: attempts, retries, stop requests, worker slots."""
