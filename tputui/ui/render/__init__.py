"""Styled lines, tables, braille dots and images as text. Pure, except for reading image files."""
