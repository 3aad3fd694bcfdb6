"""Fakes, contract suites and a scripted model server, for our tests and for plugin authors."""
