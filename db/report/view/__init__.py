"""The table of a suite as values, before any formatting, and the notes printed below it."""
