"""The terminal screens. Textual is imported here and nowhere else; widgets draw from a `Snapshot` and read no file."""
