"""The monitor: one run, live or replayed, with a module per panel."""
