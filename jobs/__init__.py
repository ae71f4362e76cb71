"""From the queue to Submitit and back."""
