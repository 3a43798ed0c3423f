"""Ray: an actor for each allocation, on a cluster that exists."""
