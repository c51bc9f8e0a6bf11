"""Strategies: how several cores run one program, and the processes of several ranks."""
