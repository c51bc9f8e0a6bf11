"""The command line: a module per command, imported when the command is chosen, and what commands share."""
