"""The tuner's data about a trial, in attributes of Optuna's tables."""
