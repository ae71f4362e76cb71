"""Reference results: a file of finished trials, shipped with the package or a friend's, read beside the user's own."""
