"""A Gaussian process over configurations and learning curves."""
