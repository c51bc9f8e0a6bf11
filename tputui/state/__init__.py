"""The reducer: events go in, a `Snapshot` comes out. Pure: no clock, file, process or terminal."""
