"""An agent answering: prompt, loop, run, reply."""
