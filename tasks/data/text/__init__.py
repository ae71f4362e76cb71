"""Readers of labeled, tagged and paired text, and of word vectors."""
