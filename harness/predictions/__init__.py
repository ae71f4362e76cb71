"""Predictions of a trained model for each example of a split: their files, and what a task records."""
