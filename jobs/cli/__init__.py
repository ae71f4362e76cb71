"""Commands that need several floors: run, enqueue, submit, status, analyze, report, dashboard, list and more."""
