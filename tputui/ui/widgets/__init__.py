"""Widgets that several screens share: panels, bars, lists, inputs and dialogs."""
