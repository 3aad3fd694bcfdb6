"""Figures, not timed tests: what starting, a turn and a long conversation cost in CPU and memory.

Wall time depends on who else is on the machine, so nothing here is judged by it.
"""
