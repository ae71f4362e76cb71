"""SLURM's command-line programs, the states of its jobs, and cluster profiles."""
