"""`homarus nodes`: what a node is asked for, and what is done with its answer."""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from homarus.cli import nodes
from homarus.cli.nodes import command
from homarus.core.errors import UnknownNameError, UserError
from homarus.core.message import Json

PHONE = {
    "nodeId": "aaaa1111bbbb", "displayName": "Ann's phone", "platform": "ios", "connected": True,
    "commands": ["camera.list"], "connectedAtMs": 1,
}  # fmt: skip
MAC = {"nodeId": "cccc2222dddd", "displayName": "Mac", "connected": False, "commands": []}
PENDING = {"requestId": "4f2a-1", "nodeId": "e" * 12, "displayName": "Tablet"}


class FakeGateway:
    """Records requests and answers them."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self.payload: Json = {}
        self.rows = [PHONE, MAC]

    def call(
        self, _gateway: object, method: str, params: Mapping[str, Json], _timeout_s: float = 0
    ) -> dict[str, Any]:
        if method == "node.list":
            return {"ts": 1, "nodes": self.rows}
        if method == "node.pair.list":
            return {"pending": [PENDING], "paired": [PHONE]}
        self.asked.append((method, params))
        answer = {"command": params.get("command"), "payload": self.payload}
        return {**PHONE, **answer, "payloadJSON": json.dumps(self.payload)}


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> FakeGateway:
    fake = FakeGateway()
    monkeypatch.setattr(nodes, "_call", fake.call)
    return fake


def run(*args: str) -> Result:
    return CliRunner().invoke(command, args, standalone_mode=False)


def done(*args: str) -> str:
    result = run(*args)
    assert result.exception is None, result.exception
    return result.stdout


@pytest.mark.parametrize(
    ("line", "name", "params"),
    [
        ("notify --title Hi", "system.notify", {"title": "Hi"}),
        ("camera list", "camera.list", None),
        ("canvas present --address https://x.test", "canvas.present", {"url": "https://x.test"}),
        ("canvas hide", "canvas.hide", None),
        ("canvas navigate https://x.test", "canvas.navigate", {"url": "https://x.test"}),
        ("canvas eval 1+1", "canvas.eval", {"javaScript": "1+1"}),
        ("canvas a2ui reset", "canvas.a2ui.reset", None),
        ("location get", "location.get", {"desiredAccuracy": "balanced"}),
    ],
)
def test_command_asks_the_node_for_one_thing(
    gateway: FakeGateway, line: str, name: str, params: Json
) -> None:
    done(*line.split(), "--node", "phone", "--json")
    ((method, asked),) = gateway.asked
    assert method == "node.invoke" and asked["nodeId"] == PHONE["nodeId"]
    assert (asked["command"], asked.get("params")) == (name, params)
    assert len(asked["idempotencyKey"]) >= 16


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("camera snap", "camera.snap"),
        ("camera clip --duration 2", "camera.clip"),
        ("screen record --duration 2", "screen.record"),
        ("canvas snapshot", "canvas.snapshot"),
    ],
)
def test_file_of_a_node_is_saved_privately(
    gateway: FakeGateway, tmp_path: Path, line: str, name: str
) -> None:
    gateway.payload = {"base64": base64.b64encode(b"picture").decode(), "width": 5}
    out = tmp_path / "file"
    shown = json.loads(done(*line.split(), "--node", "aaaa", "--out", str(out), "--json"))
    assert out.read_bytes() == b"picture" and out.stat().st_mode & 0o777 == 0o600
    assert shown["payload"] == {"width": 5} and shown["path"] == str(out)
    assert gateway.asked[0][1]["command"] == name


@pytest.mark.parametrize("payload", [None, {}, {"base64": "@@"}, {"base64": 5}, [1]])
def test_answer_without_a_file_is_an_error(
    gateway: FakeGateway, tmp_path: Path, payload: Json
) -> None:
    gateway.payload = payload
    out = tmp_path / "file"
    error = run("camera", "snap", "--node", "phone", "--out", str(out)).exception
    assert isinstance(error, UserError) and not out.exists()


def test_node_is_found_by_a_part_of_its_name(gateway: FakeGateway) -> None:
    for name in ("phone", "Ann's phone", "aaaa"):
        done("describe", "--node", name)
        assert gateway.asked.pop()[1] == {"nodeId": PHONE["nodeId"]}
    assert isinstance(run("describe", "--node", "fridge").exception, UnknownNameError)
    gateway.rows = [PHONE, {**PHONE, "nodeId": "aaaa9999"}]
    error = run("describe", "--node", "phone").exception
    assert isinstance(error, UserError) and "2 nodes" in error.message


def test_lists_show_states_and_requests(gateway: FakeGateway) -> None:
    shown = done("status")
    assert "Ann's phone" in shown and "Mac" in shown and "not connected" in shown
    assert "Mac" not in done("status", "--connected")
    assert json.loads(done("status", "--last-connected", "1", "--json"))["nodes"] == []
    assert "homarus nodes approve 4f2a-1" in done("list")
    assert json.loads(done("pending", "--json"))["pending"] == [PENDING]
    done("approve", "4f2a")
    done("reject", "4f2a")
    assert [method for method, _ in gateway.asked] == ["node.pair.approve", "node.pair.reject"]
    assert isinstance(run("approve", "9").exception, UserError)


def test_invoke_passes_parameters_and_prints_the_answer(gateway: FakeGateway) -> None:
    gateway.payload = {"lat": 1}
    line = ("invoke", "--node", "phone", "--command", "location.get")
    assert json.loads(done(*line, "--params", '{"a": 1}', "--invoke-timeout", "2")) == {"lat": 1}
    assert gateway.asked[0][1]["params"] == {"a": 1} and gateway.asked[0][1]["timeoutMs"] == 2_000
    assert isinstance(run(*line, "--params", "{").exception, UserError)
    assert isinstance(run("notify", "--node", "phone").exception, UserError)


def test_a2ui_file_or_text_becomes_messages(gateway: FakeGateway, tmp_path: Path) -> None:
    file = tmp_path / "page.jsonl"
    file.write_text('{"x": 1}\n')
    push = ("canvas", "a2ui", "push", "--node", "phone")
    done(*push, "--jsonl", str(file))
    done(*push, "--text", "Hello")
    first, second = (asked["params"]["jsonl"] for _, asked in gateway.asked)
    assert first == '{"x": 1}\n'
    assert "Hello" in second and all(json.loads(line) for line in second.splitlines())
    assert isinstance(run(*push).exception, UserError)


def test_nodes_need_a_gateway(home: Path) -> None:
    error = run("status").exception
    assert isinstance(error, UserError) and error.fix == "start it: homarus gateway"
