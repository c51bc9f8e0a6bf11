"""Engine commands that tputui starts by command line: `describe`, `predict` and `export`."""
