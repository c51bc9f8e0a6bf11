"""Tests of the launch of one run on several hosts."""
