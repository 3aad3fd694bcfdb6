"""`client_settings`: what an administrator's client on another machine must not set."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.attacks.cases import Case, Judge
from tests.attacks.live import Caller, Live, gateway


@contextmanager
def world() -> Iterator[Judge]:
    """Run a gateway; every case is a request to it by a client with all scopes."""
    with gateway() as live:
        yield lambda case: _judge(live, case)


def _judge(live: Live, case: Case) -> str:
    state = live.home / ".openclaw"
    before = _files(live)
    with Caller(live) as caller:
        caller.connect(identity=live.identity())
        answer = _send(caller, case)
        agents = caller.ask("agents.list")["payload"]["agents"]
    if answer.get("ok") is not (case["expected"] == "allow"):
        return f"was answered with {json.dumps(answer)[:200]}"
    if str(live.home) in json.dumps(agents):  # the value of a variable
        return "showed a variable"
    if case["expected"] == "deny" and _files(live) != before:
        return f"changed a file of {state}"
    return ""


def _send(caller: Caller, case: Case) -> Any:
    method, params = str(case["method"]), dict(case.get("params") or {})
    if "change" in case:
        current = caller.ask("config.get")["payload"]
        change = case["change"]
        if method != "config.patch":
            change = _merge(current["parsed"], change)
        params = {"raw": json.dumps(change), "baseHash": current["hash"]}
    return caller.ask(method, params)


def _merge(tree: Any, over: Any) -> Any:
    if not isinstance(tree, dict) or not isinstance(over, dict):
        return over
    return {**tree, **{key: _merge(tree.get(key), value) for key, value in over.items()}}


def _files(live: Live) -> dict[str, bytes]:
    """Return the files that a setting could change: the config, and folders of the user."""
    state = live.home / ".openclaw"
    found = {name: state / name for name in ("openclaw.json", "homarus.json")}
    found |= {str(path): path for path in live.home.glob("*") if path.name != "clients"}
    found |= {str(path): path for path in (live.home / ".ssh").glob("*")}
    return {name: path.read_bytes() if path.is_file() else b"" for name, path in found.items()}
