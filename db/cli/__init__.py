"""The commands `dropbench results`, `compare`, `rank` and `db`."""
