"""Checkpoints: written atomically, verified by digests, and the rules for resuming a run from one."""
