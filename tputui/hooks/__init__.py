"""What tputui adds to frameworks in commands of `tputui run --`, by their own plug-in points and by entry points."""
