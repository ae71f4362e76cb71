"""Plan submissions, submit them to executors, and look up how their jobs are."""
