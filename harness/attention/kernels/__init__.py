"""Compiled kernels and their callers: C for CPUs, Triton for GPUs."""
