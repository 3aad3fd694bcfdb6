import subprocess
import sys


def live(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.live", *args]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": ""})


def test_without_a_key_nothing_is_run_and_that_is_said() -> None:
    done = live("anthropic")
    assert done.returncode == 0
    assert done.stdout == "No key in ANTHROPIC_API_KEY: nothing was run.\n"


def test_an_unknown_provider_names_the_known_ones() -> None:
    done = live("nobody")
    assert done.returncode == 2 and "anthropic" in done.stdout
