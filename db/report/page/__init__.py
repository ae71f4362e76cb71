"""A suite as one self-contained HTML page with the runs behind every number."""
