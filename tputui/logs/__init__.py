"""Logs of other programs: readers of file formats and of console output, and what their tags mean."""
