#!/usr/bin/env python3
"""Run a developer's command with nothing but Python: `python3 dev.py COMMAND`.

setup       create .venv with the developer's dependencies, from the hashed lock files
run         install what a chat needs, fetch the demo model, open the chat
test        run every test that needs no root, no Node and no server
test-newest run the unit and style tests on the newest Python of this machine
test-peers  run the tests against third-party servers and clients
check       check lint, types, layers, style and documents
bench       measure, and compare the figures with bench/limits.toml
bench-memory  measure the recall of memory: `dev.py bench-memory DATA`, or DATA=...
crash       kill the gateway at random moments, N times for each row of docs/reliability.md
crash-syscalls  fail every write, sync and rename of a turn, one after the other (needs strace)
fuzz-exec   change commands that need approval, N times, and look for one that does without
fuzz-http   send N generated requests to the HTTP API: no 5xx, nothing that it does not describe
scale       run a thousand sessions at once, three turns each
live        hold a short conversation with a real key: `dev.py live PROVIDER`, or PROVIDER=...
ui          build the control UI (needs Node ^20.19 or >= 22.12)
fmt         format the code
lock        resolve pyproject.toml into the lock files
"""

# This file runs on every Python 3, so that an old one prints which one is needed; what needs a
# newer one is in dev_commands.py.
import os
import subprocess
import sys

OLDEST = (3, 11)


def explain():
    # type: () -> str
    """Return what to do with a Python that is too old."""
    this = ".".join(str(part) for part in sys.version_info[:3])
    text = "Homarus needs Python {0}.{1} or newer; this is {2} ({3}).".format(
        OLDEST[0], OLDEST[1], this, sys.executable
    )
    for minor in range(OLDEST[1] + 9, OLDEST[1] - 1, -1):
        name = "python3.{0}".format(minor)
        if is_installed(name):
            command = " ".join([name, "dev.py"] + sys.argv[1:])
            return "{0}\n  -> this machine has a newer one: {1}".format(text, command)
    return text + "\n  -> install one from https://www.python.org/downloads/"


def is_installed(name):
    # type: (str) -> bool
    """Return whether a Python runs; a shim of pyenv exists for others, too, and fails."""
    try:
        with open(os.devnull, "w") as hidden:
            return subprocess.call([name, "-c", ""], stdout=hidden, stderr=hidden) == 0
    except OSError:
        return False


def main():
    # type: () -> None
    """Check the version of Python, then run the command."""
    if sys.version_info < OLDEST:
        sys.exit(explain())
    import dev_commands

    if sys.argv[1:2] and sys.argv[1] in dev_commands.COMMANDS:
        dev_commands.run_command(sys.argv[1])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
