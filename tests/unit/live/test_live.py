import subprocess
import sys


def live(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.live", *args]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": ""})


def test_live_without_key_runs_nothing_and_says_so() -> None:
    done = live("anthropic")
    assert done.returncode == 0
    assert done.stdout == "No key in ANTHROPIC_API_KEY: nothing was run.\n"


def test_live_unknown_provider_lists_known_ones() -> None:
    done = live("nobody")
    assert done.returncode == 2 and "anthropic" in done.stdout
