"""Export a database as files, and merge other databases into one."""
