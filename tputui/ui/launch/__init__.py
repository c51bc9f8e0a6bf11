"""The launcher: a configuration picked, edited, checked and started."""
