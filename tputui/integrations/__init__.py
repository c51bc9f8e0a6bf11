"""Callbacks for other trainers: thin shells over `reporting`, imported by nothing in tputui."""
