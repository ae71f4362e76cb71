"""`python -m docs.reference`: extend the file of reference results, and rerun some of its trials; for maintainers."""
