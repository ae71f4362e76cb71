"""Image classification, its augmentation and token labels."""
