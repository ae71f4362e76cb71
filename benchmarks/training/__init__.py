"""Benchmarks of training speed and memory, against other training loops and without a regularizer."""
