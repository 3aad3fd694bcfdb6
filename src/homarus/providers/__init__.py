"""Models: one file per wire format, one seam."""
