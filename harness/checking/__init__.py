"""Checks of a regularized model on one batch, for users: `dropbench.check` and `dropbench doctor --model`."""
