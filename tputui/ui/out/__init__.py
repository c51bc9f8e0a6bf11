"""The way to the terminal: its colours and glyphs, the themes, and what ends with it."""
