"""What tputui adds to frameworks in commands of `tputui run --`: hooks that report training exactly, and callbacks."""
