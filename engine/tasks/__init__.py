"""The workloads, one a module."""
