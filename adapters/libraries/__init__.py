"""Adapters of model libraries: torch, timm, transformers, fairseq."""
