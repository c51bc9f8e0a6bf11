"""The tasks that ship with tputui, one per module."""
