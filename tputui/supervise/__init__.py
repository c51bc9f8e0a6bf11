"""One detached process a host: starts the training process, watches it, samples the host, escalates requests.

It outlives the terminal and must not be needed by training: `kill -9` of it harms nothing but its own samples.
"""
