"""Places in a run's journals from which a reader goes on without reading what came before; kept beside them on disk."""
