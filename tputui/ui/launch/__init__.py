"""Starting a run without its widgets: the form, its checks, and what a configuration can begin with."""
