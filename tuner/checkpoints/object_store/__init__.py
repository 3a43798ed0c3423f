"""Checkpoints and logs in an object store: addresses, keys, requests, and the process for them."""
