"""What a hand does on every screen: themes, undo, copies, exports, the palette, the kept view."""
