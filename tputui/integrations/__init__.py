"""Callbacks for other trainers: thin shells over the reporter, imported by nothing in tputui."""
