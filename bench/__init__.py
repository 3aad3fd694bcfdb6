"""Figures, not timed tests: the CPU and memory cost of a start, a turn and a long session.

Wall time depends on the other load of the machine, so few figures use it: only promises about
time itself, and then the best of several.
"""
