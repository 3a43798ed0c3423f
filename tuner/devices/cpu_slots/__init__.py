"""CPU slots (`cpu:N`): found, and measured."""
