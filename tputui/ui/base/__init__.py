"""What every screen uses: key map, key queue, preferences, undo, export and the reader thread."""
