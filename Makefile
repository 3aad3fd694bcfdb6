# Every target calls dev.py, which needs nothing but Python.
PYTHON ?= python3

.PHONY: setup run test test-newest test-peers check bench bench-memory crash crash-syscalls scale live fmt lock
setup run test test-newest test-peers check bench crash-syscalls live fmt lock:
	@$(PYTHON) dev.py $@

# `make crash N=200` kills 200 times for each row, `make scale N=1000` runs 1,000 sessions.
crash scale:
	@$(PYTHON) dev.py $@ $(N)

# `make bench-memory DATA=folder`; ARGS="--model FOLDER --parts" for more.
bench-memory:
	@$(PYTHON) dev.py $@ $(DATA) $(ARGS)
