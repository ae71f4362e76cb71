"""`dropbench gc`: delete files that no trial needs any more."""
