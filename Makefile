# Every target calls dev.py, which needs nothing but Python.
PYTHON ?= python3

.PHONY: setup run test test-newest test-peers check bench bench-memory crash crash-syscalls fuzz-exec fuzz-http scale live ui fmt lock
setup run test test-newest test-peers check bench crash-syscalls live ui fmt lock:
	@$(PYTHON) dev.py $@

# `make crash N=200` kills 200 times for each row, `make scale N=1000` runs 1,000 sessions,
# `make fuzz-exec N=5000` tries 5,000 commands, `make fuzz-http N=5000` sends 5,000 requests.
crash scale fuzz-exec fuzz-http:
	@$(PYTHON) dev.py $@ $(N)

# `make bench-memory DATA=folder`; ARGS="--model FOLDER --parts" for more.
bench-memory:
	@$(PYTHON) dev.py $@ $(DATA) $(ARGS)
