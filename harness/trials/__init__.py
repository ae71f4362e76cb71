"""What a trial is: its task, recipe, metrics and alignment, and how its model is regularized."""
