"""Reads of stored studies, also while they run. Nothing here prints."""
