"""What the tuner stores with a trial, in attributes of Optuna's tables."""
