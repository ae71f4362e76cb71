"""Reference implementation for all backends: random drop masks and attention in torch operations."""
