"""Any figure of trials: their metrics, costs and attributes, and how they are distributed."""
