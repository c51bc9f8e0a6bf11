"""Several runs compared: figures, configuration differences, pace and a verdict. Pure."""
