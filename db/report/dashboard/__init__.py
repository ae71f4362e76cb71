"""The whole database as pages on this machine alone, which follow what runs; nothing is ever changed."""
