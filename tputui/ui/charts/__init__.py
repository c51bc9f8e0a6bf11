"""Charts: pure functions from values to lines of spans. Must not import Textual, nor know panels or keys."""
