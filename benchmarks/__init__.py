"""Speed as ratios: ours beside a named peer, in turns, in one run."""
