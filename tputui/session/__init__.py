"""A run as a viewer sees it: journals, reducer and clock, giving one `Snapshot` at a time."""
