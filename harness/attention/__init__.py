"""Attention with dropped keys: backend selection, and one autograd operation for all backends."""
