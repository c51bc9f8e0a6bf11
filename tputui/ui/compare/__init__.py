"""The comparison screen: 2-8 runs side by side."""
