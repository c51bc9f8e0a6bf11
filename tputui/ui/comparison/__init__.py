"""Runs side by side without their widgets: curves, tables, how they are looked at, and the thread that reads them."""
