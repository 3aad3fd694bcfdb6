"""`homarus qr`: the code for a phone, its link, and when there is none to show."""

import json
import os
import stat
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import segno
from click.testing import CliRunner, Result

from homarus.cli.qr import command, draw
from homarus.core.errors import UserError
from homarus.gateway import machine_addresses
from homarus.store.lock import StateLock

TOKEN = "qr/token-0123456789"
LINK = "https://192.168.1.5:18789/#token=qr%2Ftoken-0123456789"


@pytest.fixture
def state(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state directory whose gateway runs: this process holds its lock."""
    monkeypatch.setattr(machine_addresses, "machine_addresses", lambda: ("192.168.1.5", "fd00::5"))
    folder = home / ".openclaw"
    config = {"gateway": {"auth": {"token": TOKEN}}}
    (folder / "openclaw.json").write_text(json.dumps(config))
    lock = StateLock(folder)
    yield folder
    lock.release()


def publish(state: Path, *bound: str, tls: bool = True) -> None:
    fields: dict[str, Any] = {"pid": os.getpid(), "url": "wss://127.0.0.1:18789", "port": 18789}
    fields |= {"bound": bound} | ({"tlsFingerprint": "ab" * 32} if tls else {})
    (state / "gateway.json").write_text(json.dumps(fields))


def run(*args: str) -> Result:
    return CliRunner().invoke(command, args, standalone_mode=False)


def read_code(lines: list[str]) -> list[list[int]]:
    """Return the modules of a drawn code, dark ones as 1."""
    halves = {" ": (1, 1), "▄": (1, 0), "▀": (0, 1), "█": (0, 0)}  # the light ones are drawn
    rows: list[list[int]] = []
    for line in lines:
        rows += [[halves[ch][half] for ch in line] for half in (0, 1)]
    return rows


def test_qr_draws_the_code_of_the_lan_link_with_the_token(state: Path) -> None:
    publish(state, "0.0.0.0", "::")
    lines = run().output.splitlines()
    assert lines[-1] == LINK
    expected = [list(map(int, row)) for row in segno.make(LINK, error="l").matrix_iter(border=2)]
    drawn = read_code(lines[:-1])
    assert drawn[: len(expected)] == expected
    assert run("--no-ascii").output == f"{LINK}\n"


def test_qr_drawn_with_ink_is_black_on_white() -> None:
    lines = list(draw([[1, 0], [0, 1], [1, 1]], ink=True))
    assert lines == [f"\x1b[38;5;16;48;5;231m{text}\x1b[0m" for text in ("▀▄", "▀▀")]
    assert list(draw([[1, 0], [0, 1]], ink=False)) == ["▄▀"]


def test_qr_json_and_picture_are_for_the_owner(state: Path, tmp_path: Path) -> None:
    publish(state, "0.0.0.0")
    file = tmp_path / "code.png"
    report = json.loads(run("--json", "--png", str(file)).output)
    assert report == {
        "url": LINK,
        "gatewayUrl": "wss://192.168.1.5:18789",
        "auth": "token",
        "urlSource": "gateway",
        "png": str(file),
    }
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    expected = BytesIO()
    segno.make(LINK, error="l").save(expected, kind="png", scale=8, border=4)
    assert file.read_bytes() == expected.getvalue()
    assert run("--png", str(file)).output == f"The code is in {file}.\n"
    assert isinstance(run("--png", str(tmp_path)).exception, UserError)
    assert isinstance(run("--png", "/no/such/folder/x.png").exception, UserError)


def test_qr_of_a_gateway_on_this_machine_alone_is_refused(state: Path) -> None:
    error = run().exception
    assert isinstance(error, UserError) and "no gateway runs" in error.message
    publish(state, "127.0.0.1", "::1")
    error = run().exception
    assert isinstance(error, UserError) and "a phone cannot reach it" in error.message
    assert "gateway.bind lan" in error.fix and "gateway.tls.enabled true" in error.fix


def test_qr_over_plain_http_warns_that_browsers_need_https(state: Path) -> None:
    publish(state, "0.0.0.0", tls=False)
    done = run("--no-ascii")
    assert done.output.startswith("http://192.168.1.5:18789/#token=")
    assert "cannot use the page without https" in done.output


@pytest.mark.parametrize(
    ("url", "link"),
    [
        ("https://gw.example", "https://gw.example/"),
        ("wss://gw.example:8443/", "https://gw.example:8443/"),
        ("https://[fd00::5]:1", "https://[fd00::5]:1/"),
    ],
)
@pytest.mark.usefixtures("state")
def test_qr_of_a_given_address_needs_no_gateway(url: str, link: str) -> None:
    assert run("--url", url, "--no-ascii").output == f"{link}#token=qr%2Ftoken-0123456789\n"


@pytest.mark.parametrize(
    "url", ["", "gw.example", "ftp://x", "https://", "https://a:b@x", "https://x/?a", "https://x:y"]
)
@pytest.mark.usefixtures("state")
def test_qr_of_an_invalid_address_is_refused(url: str) -> None:
    assert isinstance(run("--url", url or " ").exception, UserError)
