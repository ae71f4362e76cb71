"""Reaches attention by what code calls: SDPA, and the softmax of logits over keys, in modules of any library."""
