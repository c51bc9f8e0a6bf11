"""Stands in for setuptools while pip downloads a source package, so that the package's setup.py is never run."""
