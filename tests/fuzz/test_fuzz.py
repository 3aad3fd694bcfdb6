"""A short run of the fuzzer on every target; `python -m tests.fuzz` runs longer."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.targets import TARGETS

ROOT = Path(__file__).parents[2]
RUNS = 5_000


@pytest.mark.parametrize("target", TARGETS)
def test_fuzz_seeds_pass_every_target(target: str) -> None:
    keep, seeds = TARGETS[target]
    for seed in seeds():
        keep(seed)
        for cut in range(0, len(seed), 7):
            keep(seed[:cut])
            keep(seed[:cut] + b"\x00\xff[" + seed[cut:])


@pytest.mark.skipif(
    importlib.util.find_spec("atheris") is None, reason="no atheris for this Python"
)
@pytest.mark.timeout(600)
@pytest.mark.parametrize("target", TARGETS)
def test_fuzz_random_bytes_pass_every_target(target: str, tmp_path: Path) -> None:
    # By a shell: a child process starts with the peak memory of its parent.
    command = [sys.executable, "-m", "tests.fuzz", target, f"-runs={RUNS}", "-seed=1"]
    done = subprocess.run(
        ["sh", "-c", '"$@"; exit $?', "sh", *command],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},  # the fuzzer exits without cleaning up
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4_000:]
    assert f"stat::number_of_executed_units: {RUNS}" in done.stdout
    peak = re.search(r"stat::peak_rss_mb:\s+(\d+)", done.stdout)
    assert peak and int(peak[1]) < 512
