"""The queue: request, run, cancel and retry trials, and reconcile the database with their run directories."""
