"""Opens logs of other programs: reads them into run directories in the user's cache, so that every view works."""
