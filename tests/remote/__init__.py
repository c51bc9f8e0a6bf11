"""Tests of runs on other machines."""
