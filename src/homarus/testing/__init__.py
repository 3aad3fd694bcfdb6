"""Fakes of the seams and scripted model and chat servers, for our tests and plugin authors."""
