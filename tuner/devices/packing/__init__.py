"""Several trials on one GPU: how many, learned from memory and throughput."""
