"""The panels and bars of the screens. Each draws a part of a snapshot and knows nothing else."""
