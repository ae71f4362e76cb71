"""Measure speed and memory as ratios, against a named peer or a fixed limit, alternately in one run."""

import dropbench  # noqa: F401 - peers need its shims
