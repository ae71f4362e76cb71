"""A benchmark of a campaign on a simulated SLURM cluster."""
