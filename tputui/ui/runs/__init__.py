"""The run list: the first screen of the program."""
