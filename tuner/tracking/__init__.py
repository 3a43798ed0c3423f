"""Trials as runs of experiment trackers: TensorBoard, MLflow, W&B and those of other packages."""
