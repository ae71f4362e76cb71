"""Vision models: T2T-ViT, VOLO, DETR, QPIC, METRO, and their published weights."""
