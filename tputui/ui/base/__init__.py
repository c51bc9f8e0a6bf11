"""What every screen uses: key map, palette, preferences, undo, export and the reader thread."""
