"""Read and write trials and attempts, and keep them equal to the run directories."""
