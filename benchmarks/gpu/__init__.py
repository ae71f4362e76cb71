"""Budgets of the Triton kernels, from code compiled without a GPU."""
