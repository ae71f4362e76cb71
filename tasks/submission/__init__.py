"""Files of predictions as benchmarks with hidden labels take them."""
