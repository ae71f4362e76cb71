"""Train one trial: engine, loop, data loading, checkpoints, trackers."""
