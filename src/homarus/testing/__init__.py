"""Fakes, a scripted model server and a scripted chat service, for our tests and plugin authors."""
