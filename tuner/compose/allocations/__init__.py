"""Allocations of engines: submitted, joined by a start, and requested by a running study."""
