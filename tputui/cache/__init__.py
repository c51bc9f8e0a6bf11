"""Saved reducer states, so that a long run opens without reading its journals from the start."""
