"""Results over configurations: groups, aggregates, comparisons, ranks, statistics."""
