"""tputui launches PyTorch/XLA training, outlives the terminal and shows the truth about the run."""

__version__ = "0.1.0"
