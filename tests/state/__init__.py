"""Tests of the reducer and of what is shown of it."""
