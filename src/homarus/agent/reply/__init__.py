"""An answer on its way to a person: blocks, tags, notices, excuses."""
