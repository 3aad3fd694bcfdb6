"""What clients may ask: one file per noun, one function per method."""
