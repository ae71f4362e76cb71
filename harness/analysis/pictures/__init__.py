"""Analyses that draw single samples: attention maps, interactions, predictions."""
