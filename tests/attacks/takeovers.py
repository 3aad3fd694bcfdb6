"""`gateway_takeover`: what another user of the machine, or a client of a proxy on it, may try."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from homarus.gateway.identity import PublicKey, from_base64url
from tests.attacks.cases import Case, Judge, NotRunError
from tests.attacks.live import TEXT, TOKEN, Caller, Live, frame, gateway

MAX_ADDED_BYTES = 20_000_000


@contextmanager
def world() -> Iterator[Judge]:
    """Run a gateway with a token, whose owner has paired one device."""
    with gateway() as live:
        with Caller(live) as owner:
            assert owner.connect(identity=live.identity("owner"))["ok"]
        yield lambda case: _judge(live, case)


def _judge(live: Live, case: Case) -> str:
    match case["attack"]:
        case "pair":
            found = _pair(live, case)
        case "forged_key":
            found = _forge(live, case)
        case "no_nonce":
            with Caller(live) as caller:
                identity = live.identity("owner")
                found = _outcome(caller.connect(identity=identity, with_nonce=False))
        case "revoke_owner":
            found = _revoke(live, case)
        case "frame":
            found = _frame(live, case)
        case other:
            raise NotRunError(f"attack {other}")
    return "" if found == case["expected"] else f"ended as {found}"


def _outcome(answer: Any) -> str:
    if "close" in answer:
        return "closed"
    return "granted" if answer["ok"] else str(answer["error"]["message"])


def _pair(live: Live, case: Case) -> str:
    """Pair a new device, with these headers and this token."""
    token = TOKEN if case.get("token") == "owner" else case.get("token")
    with Caller(live, extra=tuple(case.get("headers", ()))) as caller:
        return _outcome(caller.connect(token, identity=live.identity(case["id"])))


def _forge(live: Live, case: Case) -> str:
    """Connect as a key for which signatures can be made without a private key."""
    raw = bytes.fromhex(case["key"])
    assert from_base64url(case["signature"]) is not None
    outcomes = set()
    for number in range(16):
        device = {
            "id": PublicKey(raw).device_id,
            "publicKey": case["publicKey"],
            "signature": case["signature"],
            "signedAt": time.time_ns() // 1_000_000 + number,
        }
        with Caller(live) as caller:
            nonce = caller.json()["payload"]["nonce"]
            client = {"id": "cli", "version": "1", "platform": "linux", "mode": "cli"}
            params = {"minProtocol": 3, "maxProtocol": 3, "role": "operator", "client": client}
            params |= {"scopes": ["operator.admin"], "auth": {"token": TOKEN}}
            answer = caller.ask("connect", {**params, "device": {**device, "nonce": nonce}})
            outcomes.add(_outcome(answer))
    return outcomes.pop() if len(outcomes) == 1 else str(sorted(outcomes))


def _revoke(live: Live, case: Case) -> str:
    """Act on the owner's device with these scopes."""
    params = {"deviceId": live.identity("owner").device_id, "role": "operator"}
    with Caller(live) as caller:
        scopes = tuple(case["scopes"])
        assert caller.connect(identity=live.identity(case["id"]), scopes=scopes)["ok"]
        outcome = _outcome(caller.ask(case["method"], {**params, **case.get("params", {})}))
    with Caller(live) as owner:
        assert owner.connect(identity=live.identity("owner"))["ok"], "the owner is locked out"
    return outcome


def _frame(live: Live, case: Case) -> str:
    """Send a large frame before or after a handshake without scopes, and measure the memory."""
    before = live.memory_bytes()
    with Caller(live) as caller:
        if case["state"] == "no scopes":
            assert caller.connect()["ok"]
        else:
            caller.json()
        body = case["text"] * (case["bytes"] // len(case["text"]))
        text = json.dumps({"type": "req", "id": "1", "method": "health"})[:-1]
        caller.sock.sendall(frame(f'{text},"params":[{body}0]}}'.encode(), TEXT)[: case["bytes"]])
        found = caller.json()
    if live.memory_bytes() - before > MAX_ADDED_BYTES:
        return "too much memory"
    return _outcome(found)
