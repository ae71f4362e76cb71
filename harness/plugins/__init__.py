"""Plug-ins of users: which files they consist of, how they are loaded, and their copies beside the run directories."""
