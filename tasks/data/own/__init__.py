"""Data sets of the user's own in common formats, with an optional card in their folder."""
