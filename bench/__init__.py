"""Figures, not timed tests: what starting, a turn and a long conversation cost in CPU and memory.

Wall time depends on who else is on the machine, so hardly anything here is judged by it: only what
is a promise about time itself, and then the best of several.
"""
