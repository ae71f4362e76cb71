"""Results over configurations: groups, comparisons, ranks."""
