"""The cost of starting the program, by kind of command."""

import json
import sys
import tempfile
from functools import partial
from pathlib import Path

from bench.figure import Figure, best_of, child_cpu_s, private_env

COMMANDS = {
    "version": ["--version"],
    "help": ["--help"],
    "config_get": ["config", "get", "agents.defaults.workspace"],
}


def measure(*, quick: bool) -> list[Figure]:
    times = 5 if quick else 15
    program = str(Path(sys.executable).parent / "homarus")
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        env = private_env(home)
        (home / "state").mkdir()
        config = {"agents": {"defaults": {"workspace": str(home / "workspace")}}}
        (home / "state" / "openclaw.json").write_text(json.dumps(config), encoding="utf-8")
        bare_s = best_of(times, partial(child_cpu_s, [sys.executable, "-c", "pass"], env))
        figures = [Figure("start.python_cpu_s", bare_s, "CPU-s", "python -c pass, for comparison")]
        for name, args in COMMANDS.items():
            spent_s = best_of(times, partial(child_cpu_s, [program, *args], env))
            note = f"{spent_s / bare_s:.1f} × python -c pass"
            figures.append(Figure(f"start.{name}_cpu_s", spent_s, "CPU-s", note))
    return figures
