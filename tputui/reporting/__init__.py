"""What a script calls to report its training, `tputui.start` and `Run`, and the process that writes it to a journal."""
