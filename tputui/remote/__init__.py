"""Runs of other machines: streams their journals over ssh into a mirror, a run directory in the user's cache."""
