"""Readers of bodies and body models."""
