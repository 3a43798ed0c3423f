"""Callbacks and arguments for training frameworks, one module for each framework."""
