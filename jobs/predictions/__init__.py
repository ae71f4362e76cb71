"""Stored predictions: listed, and compared example by example."""
