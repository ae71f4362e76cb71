"""Readers of parallel text."""
