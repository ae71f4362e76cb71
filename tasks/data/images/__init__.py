"""Readers of labeled images."""
