"""Speed as ratios: ours beside a named peer, in turns, in one run."""

import dropbench  # noqa: F401 - peers need its shims
