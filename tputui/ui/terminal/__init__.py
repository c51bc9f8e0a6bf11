"""The terminal: its capabilities, themes, ASCII fallback and hang-up."""
