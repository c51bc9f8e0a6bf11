"""Telemetry: the events of a run, their journals, the reporter and the run directory."""
