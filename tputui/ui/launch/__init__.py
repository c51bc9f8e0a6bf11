"""The launcher: choose a configuration, edit and check it, start the run."""
