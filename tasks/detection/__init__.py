"""Object detection with DETR and interaction detection with QPIC."""
