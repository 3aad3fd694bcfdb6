"""Keys and logins at a terminal, and an answer that uses one."""

import json
import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import httpx2
import pytest

from tests.e2e.gateway import change
from tests.e2e.program import Home, Terminal
from tests.unit.providers.oauth_peers import authlib_server

KEY = "sk-proj-0123456789abcdef"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    yield from authlib_server()


def stored(home: Home) -> Any:
    file = home.state / "agents" / "main" / "agent" / "auth-profiles.json"
    return json.loads(file.read_text())


def login(home: Home, server: str, *more: str) -> Terminal:
    words = ["models", "auth", "login", "acme", "--client-id", "cli", "--scope", "a"]
    words += ["--token-url", f"{server}/token", "--authorize-url", f"{server}/authorize"]
    return Terminal(home, *words, *more)


def test_auth_key_typed_at_terminal_is_not_echoed(home: Home) -> None:
    with closing(Terminal(home, "models", "auth", "add")) as terminal:
        terminal.wait_for("Provider: ")
        terminal.type("openai")
        terminal.wait_for("Key: ")
        terminal.type(KEY)
        assert terminal.end() == 0
        assert KEY not in terminal.screen
    assert stored(home)["profiles"]["openai:default"]["key"] == KEY


@pytest.mark.parametrize("more", [[], ["--paste"]])
def test_auth_login_accepts_pasted_redirect_address(
    home: Home, server: str, more: list[str]
) -> None:
    with closing(login(home, server, *more)) as terminal:
        address = re.search(r"http://\S+/authorize\S+", terminal.wait_for("paste its address"))
        assert address
        terminal.type(httpx2.get(address[0], trust_env=False).headers["location"])
        assert terminal.end() == 0
    assert stored(home)["profiles"]["acme:default"]["refresh"]


def test_auth_login_ends_with_ctrl_c(home: Home, server: str) -> None:
    with closing(login(home, server)) as terminal:
        terminal.wait_for("paste its address")
        terminal.press_ctrl_c()
        assert terminal.end() == 130


def test_auth_added_key_is_used_and_marked_as_working(home: Home, model_url: str) -> None:
    home.use_model(model_url)
    config = json.loads((home.state / "openclaw.json").read_text())
    del config["models"]["providers"]["mock"]["apiKey"]
    home.configure(config)
    home.run("models", "auth", "add", "mock", "--key-stdin", text=f"{KEY}\n")
    assert home.run("agent", "-m", "hello").status == 0
    assert stored(home)["lastGood"] == {"mock": "mock:default"}
    assert stored(home)["usageStats"]["mock:default"]["lastUsed"] > 0
    (row,) = home.run("models", "auth", "status", "--json").json["profiles"]
    assert row["lastGood"] and row["shown"] == "sk-…cdef"
    for file in home.state.rglob("*"):
        if file.is_file() and file.name != "auth-profiles.json":
            assert KEY.encode() not in file.read_bytes(), file


def test_auth_remove_asks_and_doctor_probe_reports_refusal(home: Home, model_url: str) -> None:
    home.use_model(model_url)
    entry = {"baseUrl": "http://127.0.0.1:9/v1", "models": [{"id": "m"}]}
    change(home, models={"providers": {"acme": entry}}, agents={"defaults": {"model": "acme/m"}})
    assert home.run("models", "auth", "add", "acme", "--key-stdin", text="sk-acme-1").status == 0
    probed = home.run("doctor", "--probe")
    assert probed.status == 1 and "127.0.0.1:9" in probed.out
    with closing(Terminal(home, "models", "auth", "remove", "acme:default")) as terminal:
        terminal.wait_for("Remove acme:default from ~/.openclaw/agents/main/agent")
        terminal.type("n")
        assert terminal.end() == 130
    with closing(Terminal(home, "models", "auth", "remove", "acme:default")) as terminal:
        terminal.wait_for("[y/N]")
        terminal.type("y")
        terminal.wait_for("acme:default is removed")
        assert terminal.end() == 0
