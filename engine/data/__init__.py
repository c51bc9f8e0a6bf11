"""Which examples a core gets, and how they reach it."""
