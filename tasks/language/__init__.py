"""Language modeling: byte-level BPE, GPT-2's tokenizer files, cached tokens."""
