"""The dashboard: read-only pages of the database that follow running trials, served to this machine only."""
