"""Model providers: one adapter file per wire format behind one protocol."""
