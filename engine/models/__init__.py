"""Networks that ship with tputui."""
