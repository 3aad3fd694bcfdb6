"""`homarus browser`: the requests of each command, which are routes of the browser service."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from homarus.cli import browser_target
from homarus.cli.browser import command
from homarus.core.errors import UserError
from homarus.core.message import Json
from homarus.tools.browser.acts import ACTS
from homarus.tools.browser.routes import find_route


class FakeClient:
    """A gateway that answers browser.request, if there is such a route."""

    def __init__(self) -> None:
        self.actions: list[tuple[str, dict[str, Any]]] = []
        self.answer: dict[str, Json] = {}

    async def __aenter__(self) -> "FakeClient":
        return self

    async def __aexit__(self, *_exc: object) -> None:
        pass

    async def call(self, method: str, params: dict[str, Any], **_named: object) -> dict[str, Json]:
        assert method == "browser.request"
        route = find_route(
            params["method"], params["path"], params["query"], params.get("body") or {}
        )
        self.actions.append((route.action, dict(route.values)))
        return {"ok": True, **self.answer}


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    fake = FakeClient()
    monkeypatch.setattr(browser_target, "is_gateway_running", lambda _gateway: True)
    monkeypatch.setattr(browser_target, "open_gateway", lambda _gateway: fake)
    return fake


def run(*args: str) -> Result:
    return CliRunner().invoke(command, args, standalone_mode=False)


def done(line: str) -> str:
    result = run(*shlex.split(line))
    assert result.exception is None, result.exception
    return result.stdout


@pytest.mark.parametrize(
    ("line", "action", "values"),
    [
        ("focus t2", "focus", {"targetId": "t2"}),
        ("close t2", "close", {"targetId": "t2"}),
        ("navigate https://x.test", "navigate", {"targetUrl": "https://x.test"}),
        ("reset-profile --yes", "reset-profile", {}),
        ("upload e1 a.txt b.txt", "upload", {"ref": "e1", "paths": ["a.txt", "b.txt"]}),
        ("dialog --dismiss", "dialog", {"accept": False}),
        ("dialog --accept --text x", "dialog", {"accept": True, "promptText": "x"}),
        ("pdf --tab t1", "pdf", {"targetId": "t1"}),
        ("console --level warning --limit 3", "console", {"level": "warning", "limit": 3}),
        ("errors", "console", {"level": "error"}),
        ("profiles", "profiles", {}),
        ("cookies", "cookies", {}),
        ("cookies set a b", "cookies/set", {"cookie": {"name": "a", "value": "b"}}),
        ("cookies clear", "cookies/clear", {}),
        ("storage get local k", "storage", {"kind": "local", "key": "k"}),
        ("storage set session k v", "storage/set", {"kind": "session", "value": "v"}),
        ("storage clear local", "storage/clear", {"kind": "local"}),
    ],
)
def test_command_asks_for_its_route(
    client: FakeClient, line: str, action: str, values: dict[str, Any]
) -> None:
    done(f"{line} --json")
    ((asked, given),) = client.actions
    assert asked == action and values.items() <= given.items()


@pytest.mark.parametrize(
    ("line", "kind", "values"),
    [
        ("click e1 --double", "click", {"ref": "e1", "doubleClick": True, "button": "left"}),
        ("type e1 hello --submit", "type", {"text": "hello", "submit": True}),
        ("press Enter", "press", {"key": "Enter"}),
        ("hover e1", "hover", {"ref": "e1"}),
        ("drag e1 e2", "drag", {"startRef": "e1", "endRef": "e2"}),
        ("select e1 a b", "select", {"values": ["a", "b"]}),
        ("fill e1=Ada=x e2=", "fill", {"fields": [{"ref": "e1", "value": "Ada=x"},
                                                  {"ref": "e2", "value": ""}]}),
        ("resize 800 600", "resize", {"width": 800, "height": 600}),
        ("wait --time 1.5", "wait", {"timeMs": 1_500}),
        ("wait --text-gone x", "wait", {"textGone": "x"}),
        ("evaluate '() => 1'", "evaluate", {"fn": "() => 1"}),
        ("close", "close", {}),
    ],
)  # fmt: skip
def test_act_has_its_kind_and_values(
    client: FakeClient, line: str, kind: str, values: dict[str, Any]
) -> None:
    done(f"{line} --tab t1" if kind != "close" else line)
    ((action, given),) = client.actions
    assert action == "act" and given["kind"] == kind and values.items() <= given.items()
    assert kind in {*ACTS, "close"}


def test_answers_are_printed_without_control_characters(client: FakeClient) -> None:
    client.answer = {"messages": [{"type": "error", "text": "bad\x1b[2J\nthing"}]}
    shown = done("errors")
    assert "\x1b" not in shown and shown.count("\n") == 1 and "bad" in shown
    client.answer = {"values": {"k": "v\x07"}}
    assert "\x07" not in done("storage get local")
    client.answer = {"result": {"a": 1}}
    assert json.loads(done("evaluate '() => 1'")) == {"a": 1}
    client.answer = {"cookies": [{"domain": "x.test", "name": "sid", "value": "secret"}]}
    assert "sid" in done("cookies") and "secret" not in done("cookies")


def test_field_without_a_value_is_refused(client: FakeClient) -> None:
    assert isinstance(run("fill", "e1").exception, UserError) and client.actions == []


def test_profiles_are_added_and_removed_in_the_configuration(home: Path) -> None:
    file = home / ".openclaw" / "openclaw.json"
    file.write_text("{ // mine\n}")
    for name in ("work", "home"):
        assert run("create-profile", name).exception is None
    profiles = json.loads(file.read_text().replace("// mine", ""))["browser"]["profiles"]
    assert {*profiles} == {"work", "home"}
    assert profiles["work"]["cdpPort"] != profiles["home"]["cdpPort"]
    assert "// mine" in file.read_text()
    assert isinstance(run("create-profile", "work").exception, UserError)
    assert isinstance(run("create-profile", "../x").exception, UserError)
    assert run("delete-profile", "work", "--yes").exception is None
    assert '"work"' not in file.read_text() and "work:" not in file.read_text()
    assert isinstance(run("delete-profile", "work", "--yes").exception, UserError)
