"""Suites: YAML files with grids of trials, layouts and published cells, and search spaces."""
