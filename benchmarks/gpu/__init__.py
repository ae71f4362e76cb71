"""Benchmarks of the Triton kernels: time on a GPU, and instructions, which are counted without one."""
