"""Trials as runs in experiment trackers: TensorBoard, MLflow, W&B and those of other packages."""
