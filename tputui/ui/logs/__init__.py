"""The log without its widget: lines folded, kept, chosen and read back from the journals."""
