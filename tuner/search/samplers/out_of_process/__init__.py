"""Slow samplers: a process of their own makes the suggestions."""
