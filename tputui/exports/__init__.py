"""A recorded run as files of other programs: tables, TensorBoard event files and an HTML page."""
