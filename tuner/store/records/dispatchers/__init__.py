"""Dispatchers of a study: starts, ownership of trials, peers, heartbeats that stopped."""
