"""Translation with fairseq."""
