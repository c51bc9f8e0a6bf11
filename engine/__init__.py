"""The training engine: runs only in the worker process, started by command line."""
