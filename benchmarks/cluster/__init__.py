"""A campaign on a simulated SLURM cluster of a thousand nodes."""
