"""Regression tests for defects that were found by attacking and killing the program from outside.

One module per defect, numbered: the module's docstring states the rule that must hold. Each test
failed before its fix.
"""
