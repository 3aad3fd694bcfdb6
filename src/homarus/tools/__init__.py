"""What a model may do: typed functions, called through one pipeline."""
