"""The list of runs without its widgets: rows, which of them, in which order, and the thread that reads them."""
