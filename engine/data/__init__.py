"""Sources of examples: read, checked, split, and fetched in batches."""
