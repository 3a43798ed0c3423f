"""Allocations of engines: submitted, joined by a start, and asked for by a running study."""
