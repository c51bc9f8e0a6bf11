"""Hooks in torch that report the training of a script which does not report itself: exact losses, steps and epochs."""
