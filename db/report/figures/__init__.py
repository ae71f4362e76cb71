"""Figures of suites, drawn with matplotlib."""
