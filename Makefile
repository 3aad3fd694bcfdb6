# Every target is a door to dev.py, which needs nothing but Python.
PYTHON ?= python3

.PHONY: setup run test test-peers check bench live fmt lock
setup run test test-peers check bench live fmt lock:
	@$(PYTHON) dev.py $@
