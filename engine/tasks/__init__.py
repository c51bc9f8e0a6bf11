"""The workloads that ship with tputui, one per module."""
