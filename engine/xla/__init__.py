"""What the XLA runtime is asked and told."""
