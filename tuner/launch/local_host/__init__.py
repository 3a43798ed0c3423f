"""Starts workers on this host through a fork server, and ends them."""
