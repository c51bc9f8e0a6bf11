"""The terminal: its capabilities, themes and ASCII fallback."""
