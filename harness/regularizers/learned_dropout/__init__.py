"""Learned Dropout (Yan 2024): options, the mask that lives in the model, and its statistics."""
