"""Memory of a training step: predicted before the run starts, and reduced by recomputing blocks."""
