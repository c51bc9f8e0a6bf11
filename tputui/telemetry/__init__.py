"""The wire: what a run says, and how it is kept."""
