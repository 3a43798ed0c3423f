"""A user's queue of studies on one machine: its entries, and the process that runs them."""
