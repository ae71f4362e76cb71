"""Export a database, and merge exported files or other databases into one."""
