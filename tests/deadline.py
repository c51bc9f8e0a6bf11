"""How long a test waits for what must happen."""

DEADLINE_S = 900.0
"""A machine that others use too may be ten times slower than at another time; only a failing test waits this long."""
