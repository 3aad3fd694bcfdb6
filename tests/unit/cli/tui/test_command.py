"""The command line: what it needs, and what it hands on."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from homarus.cli.tui.command import check_library
from homarus.core.errors import MissingExtraError
from tests.unit.cli.tui.harness import MAIN, FakeGateway, shown, type_text
from tests.waiting import until


def test_library_that_is_missing_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "textual", None)
    with pytest.raises(MissingExtraError) as caught:
        check_library()
    assert "tui" in caught.value.fix
    assert caught.value.exit_status == 2


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        ("sys.modules['textual'] = None", "needs a package that is not installed"),
        ("pass", "needs a terminal"),
    ],
)
def test_command_that_cannot_start_says_why(tmp_path: Path, prepare: str, message: str) -> None:
    program = f"import sys; {prepare}; from homarus.__main__ import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "tui"],
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2
    assert message in done.stderr
    assert "→" in done.stderr


async def test_options_are_sent_with_every_message(tmp_path: Path) -> None:
    gateway = FakeGateway()
    options: dict[str, Any] = {
        "thinking": "high",
        "is_delivering": True,
        "timeout_s": 30.0,
        "message": "first",
    }
    async with shown(gateway, tmp_path, **options) as (_app, pilot):
        await until(lambda: gateway.params_of("chat.send"))
        await type_text(pilot, "second")
        await pilot.press("enter")
        await until(lambda: len(gateway.params_of("chat.send")) == 2)
    for params, text in zip(gateway.params_of("chat.send"), ("first", "second"), strict=True):
        assert params["message"] == text
        assert params["sessionKey"] == MAIN
        assert (params["thinking"], params["deliver"], params["timeoutMs"]) == (
            "high",
            True,
            30_000,
        )
