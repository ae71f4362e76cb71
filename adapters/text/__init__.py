"""Text models: encoders, decoders, mixtures of experts, and their heads."""
