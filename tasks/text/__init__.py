"""Text classification, sequence labeling and textual entailment."""
