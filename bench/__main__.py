"""`python -m bench [--quick] [--json FILE] [NAME …]`: measure, print, and check limits.toml."""

import argparse
import compileall
import json
import platform
import subprocess
import sys
import sysconfig
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path

from bench.figure import ROOT, Figure, at_usual_pace, slowness, weather_ms

BENCHES = (
    "start", "turns", "stream", "wires", "transcript", "prompt", "gateway", "channels", "lines",
    "other_channels",
    "memory", "tools", "mcp", "skills", "subagents", "cron", "http_api", "page",
)  # fmt: skip
LOOKS = 8
_PAUSE_S = 5.0  # before another look: what slows a shared machine down passes
_LOOK_S = 0.25  # between two looks at how fast the machine is: a hundredth of its time
LIMITS = Path(__file__).parent / "limits.toml"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, for every CI run")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHES))
    options = parser.parse_args()
    if unknown := set(options.names) - set(BENCHES):
        parser.error(f"unknown bench {', '.join(unknown)}; there are {', '.join(BENCHES)}")
    compile_bytecode()
    limits = tomllib.loads(LIMITS.read_text(encoding="utf-8"))
    figures = list[Figure]()
    for name in options.names or BENCHES:
        found = measure(name, quick=options.quick)
        for _ in range(LOOKS):  # noise only ever makes it worse: look again
            if judge(found, limits):
                time.sleep(_PAUSE_S)
                found = better_of(found, measure(name, quick=options.quick), limits)
        figures += found
    broken = judge(figures, limits)
    print(table(figures, limits))
    if options.json:
        options.json.write_text(json.dumps(report(figures), indent=1), encoding="utf-8")
    for line in broken:
        print(f"over the limit: {line}", file=sys.stderr)
    return 1 if broken else 0


def compile_bytecode() -> None:
    """Compile the sources: without bytecode, which may be forbidden, imports cost twice as much."""
    for folder in (ROOT / "src", Path(sysconfig.get_path("purelib"))):
        compileall.compile_dir(folder, quiet=2, workers=2)


def measure(name: str, *, quick: bool) -> list[Figure]:
    """Run one bench in a process of its own, so that its imports do not count for the next."""
    code = (
        f"import bench.{name}, dataclasses, json\n"
        f"figures = bench.{name}.measure(quick={quick})\n"
        "print(json.dumps([dataclasses.astuple(figure) for figure in figures]))"
    )
    weather = [weather_ms()]
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        while child.poll() is None:
            weather.append(weather_ms())
            time.sleep(_LOOK_S)
        told = child.stdout.read() if child.stdout else ""
    if child.returncode:
        sys.exit(f"bench: {name} failed")
    slow = slowness(weather)
    found = (Figure(*values) for values in json.loads(told.splitlines()[-1]))
    return [at_usual_pace(figure, slow) for figure in found]


def better_of(
    first: list[Figure], second: list[Figure], limits: Mapping[str, Mapping[str, float]]
) -> list[Figure]:
    """Return the better value of each figure of two measurements."""
    found = {figure.name: figure for figure in second}
    return [
        max(pair, key=lambda one: one.value)
        if "least" in limits.get(pair[0].name, {})
        else min(pair, key=lambda one: one.value)
        for pair in ((one, found.get(one.name, one)) for one in first)
    ]


def judge(figures: list[Figure], limits: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return a description of every figure that is outside its limit."""
    broken = []
    for figure in figures:
        limit = limits.get(figure.name, {})
        if figure.value > limit.get("most", float("inf")):
            broken.append(
                f"{figure.name} is {figure.value:.4g} {figure.unit}, most {limit['most']}"
            )
        if figure.value < limit.get("least", float("-inf")):
            broken.append(
                f"{figure.name} is {figure.value:.4g} {figure.unit}, least {limit['least']}"
            )
    return broken


def table(figures: list[Figure], limits: Mapping[str, Mapping[str, float]]) -> str:
    rows = [("figure", "value", "limit", "")]
    for figure in figures:
        limit = limits.get(figure.name, {})
        bound = "".join(
            f"{mark} {limit[k]:g}" for k, mark in (("most", "≤"), ("least", "≥")) if k in limit
        )
        rows.append((figure.name, f"{figure.value:.4g} {figure.unit}", bound, figure.note))
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    return "\n".join(
        "  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows
    )


def report(figures: list[Figure]) -> dict[str, object]:
    """Return the figures with the conditions they were measured under."""
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "figures": {f.name: {"value": f.value, "unit": f.unit, "note": f.note} for f in figures},
    }


if __name__ == "__main__":
    sys.exit(main())
