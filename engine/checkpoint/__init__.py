"""Checkpoints on disk: written whole or not at all, checked by digests, and what may change when a run continues."""
