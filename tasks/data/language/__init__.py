"""Readers of running text."""
