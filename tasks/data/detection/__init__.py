"""Readers of boxes and interactions."""
