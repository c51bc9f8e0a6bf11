"""Tests of the reducer and of snapshots."""
