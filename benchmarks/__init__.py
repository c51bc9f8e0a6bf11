"""Measurements: contenders side by side in one run, ratios printed."""
