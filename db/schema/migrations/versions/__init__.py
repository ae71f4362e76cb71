"""One file per migration of the schema."""
