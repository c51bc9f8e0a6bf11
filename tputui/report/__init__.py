"""A run as HTML: a page for a file, and a card that a notebook updates in place. Scales and ticks are the screen's."""
