"""The supervisor, one detached process per host: starts training, monitors it, samples the host, enforces requests.

It outlives the terminal. Training does not depend on it: `kill -9` of the supervisor only loses its own samples.
"""
