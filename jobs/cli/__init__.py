"""Commands that need several levels: run, enqueue, submit, status, analyze, report, dashboard, list and more."""
