"""Tools: typed functions that a model can call, through one pipeline."""
