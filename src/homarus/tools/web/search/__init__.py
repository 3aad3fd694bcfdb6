"""Search providers: each module with `find_access` and `search` is one, named like its module."""
