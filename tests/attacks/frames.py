"""`frames_json`: malicious frames and requests, on a live gateway.

A case is a text to send, an expression that computes one, or the description of a behaviour.
"""

import ast
import json
import operator
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from homarus.core.errors import InvalidRequestError
from homarus.gateway.frames import HANDSHAKE_S, parse_request
from tests.attacks.cases import Case, Judge, NotRunError
from tests.attacks.live import BINARY, CONTINUED, TEXT, Caller, Live, frame, gateway

MB = 1 << 20


@contextmanager
def world() -> Iterator[Judge]:
    """Run one gateway, and a connection that never sends anything."""
    with gateway() as live, Caller(live) as silent:
        started = time.monotonic()
        yield lambda case: _judge(live, case, silent, started)


def _judge(live: Live, case: Case, silent: Caller, started: float) -> str:
    told = f"{case['note']} {case['input'][:100]}".lower()
    if "handshake" in told:
        return _wait_out(silent, started)
    for pattern, attempt in BEHAVIOURS:
        if re.search(pattern, told):
            return attempt(live)
    text = _text(case)
    problem = _parse(text, case["expected"])
    return problem or _send(live, text)


def _text(case: Case) -> str:
    """Return the text to send; computed if the file has only its start."""
    if case.get("generator"):
        made: str = _evaluate(ast.parse(case["generator"], mode="eval").body)
        return made
    text = str(case["input"])
    if "int" in case["note"] and "regenerate" in text:
        return _request('{"x":%s}' % ("9" * 5000))
    if not text.lstrip("\ufeff \n").startswith(("{", "[", '"')) or "regenerate" in text:
        raise NotRunError(text[:60])
    return text


def _evaluate(node: ast.expr) -> Any:
    """Evaluate an expression of a case: texts and numbers, added and multiplied."""
    operators: dict[type, Callable[[Any, Any], Any]] = {
        ast.Add: operator.add,
        ast.Mult: operator.mul,
    }
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in operators:
        return operators[type(node.op)](_evaluate(node.left), _evaluate(node.right))
    raise NotRunError("an expression of another kind")


def _request(params: str) -> str:
    return f'{{"type":"req","id":"1","method":"health","params":{params}}}'


def _parse(text: str, expected: str) -> str:
    """Send it as a frame and as params: it is refused, or parsed in one way only."""
    for asked in {text, _request(text)} if text[:1] in {"{", "["} else {text}:
        try:
            request = parse_request(asked)
        except InvalidRequestError:
            continue
        if asked == text and "unknown method" not in expected:
            return "was accepted as a frame"
        if expected.startswith("reject") and "or last-wins" not in expected:
            return f"was accepted: {str(request)[:80]}"
    return ""


def _send(live: Live, text: str) -> str:
    """Send it after authentication: the gateway returns an error and continues."""
    with Caller(live) as caller:
        caller.connect(identity=live.identity())
        caller.send(text)
        answer = caller.json()
        while answer.get("type") == "event":
            answer = caller.json()
        if answer.get("ok"):
            return f"was answered {answer}"
        return _still_serves(live)


def _still_serves(live: Live) -> str:
    with Caller(live) as caller:
        caller.connect(identity=live.identity())
        return "" if caller.ask("health").get("ok") else "does not serve any more"


def _closes(live: Live, code: int, *frames: bytes, greeted: bool = False) -> str:
    with Caller(live) as caller:
        if greeted:
            caller.connect(identity=live.identity())
        with suppress(ConnectionError):
            for each in frames:
                caller.sock.sendall(each)
        found = caller.close_code()
    return _still_serves(live) if found == code else f"closed with {found}"


def _binary(live: Live) -> str:
    wrong = frame(b"\0" * 10, BINARY)
    return _closes(live, 1003, wrong) or _closes(live, 1003, wrong, greeted=True)


def _bad_utf8(live: Live) -> str:
    wrong = frame(b"\xc3\x28")
    return _closes(live, 1007, wrong) or _closes(live, 1007, wrong, greeted=True)


def _large_unknown(live: Live) -> str:
    before = live.memory_bytes()
    problem = _closes(live, 1009, frame(b'{"type":"' + b"a" * MB))
    grown = live.memory_bytes() - before
    return problem or ("" if grown < 16 * MB else f"took {grown >> 20} MB")


def _large_known(live: Live) -> str:
    return _closes(live, 1009, frame(b'{"type":"' + b"a" * (30 * MB)), greeted=True)


def _fragments(live: Live) -> str:
    rest = frame(b"a", CONTINUED, fin=False) * 1_000
    return _closes(live, 1009, frame(b"a", TEXT, fin=False), *[rest] * 100)


def _compressed(live: Live) -> str:
    offer = ("Sec-WebSocket-Extensions: permessage-deflate",)
    with Caller(live, extra=offer) as caller:
        if b"permessage-deflate" in caller.head.lower():
            return "compression was agreed to"
    return _closes(live, 1002, frame(b"\x00" * 100, TEXT | 0x40))


def _wait_out(silent: Caller, started: float) -> str:
    code = silent.close_code()
    took_s = time.monotonic() - started
    if code != 1008:
        return f"closed with {code}"
    return "" if took_s < HANDSHAKE_S + 30 else f"closed after {took_s:.0f} s"


def _never_read(live: Live) -> str:
    """Send many requests and read nothing: the gateway closes it, and others are not affected."""
    line = json.dumps({"message": "~" * 950}) + "\n"
    with (live.home / ".openclaw" / "gateway.log").open("a", encoding="utf-8") as log:
        log.write(line * 1_000)
    before = live.memory_bytes()
    with Caller(live) as caller:
        caller.connect(identity=live.identity())
        request = {"type": "req", "method": "logs.tail"}
        for at in range(120):
            params = {"limit": 5_000, "maxBytes": 1_000_000}
            caller.send(json.dumps({**request, "id": f"x{at}", "params": params}))
            if at % 20 == 0 and (problem := _still_serves(live)):
                return problem
        grown = live.memory_bytes() - before
        got = _drain(caller.sock)
    if got > 100 * MB:
        return f"{got >> 20} MB were kept for it"
    return _still_serves(live) or ("" if grown < 120 * MB else f"took {grown >> 20} MB")


def _drain(sock: socket.socket) -> int:
    """Read until the gateway closes the connection."""
    got = 0
    with suppress(ConnectionError):
        while more := sock.recv(MB):
            got += len(more)
    return got


def _reused_id(live: Live) -> str:
    with Caller(live) as caller:
        caller.connect(identity=live.identity())
        wait = {"type": "req", "id": "same", "method": "agent.wait"}
        params = {"runId": "nobody", "timeoutMs": 500}
        for _ in range(2):
            caller.send(json.dumps({**wait, "params": params}))
        answer = caller.json()
        while answer.get("type") != "res":
            answer = caller.json()
        message = answer.get("error", {}).get("message", "")
        return "" if "in use" in message else f"was answered {answer}"


def _odd_ids(_live: Live) -> str:
    for odd in ("null", "{}", "[]", "1", "true", '""', f'"{"a" * (10 * MB)}"'):
        with suppress(InvalidRequestError):
            parse_request(f'{{"type":"req","id":{odd},"method":"health"}}')
            return f"an id of {odd[:20]} was accepted"
    return ""


def _bom(live: Live) -> str:
    text = "\ufeff" + _request("{}")
    for form in (text, text.encode()):
        with suppress(InvalidRequestError):
            parse_request(form)
            return "is accepted in one of its forms"
    return _send(live, text)


def _flood(live: Live) -> str:
    """One invalid connect closes the connection; the rest is not read."""
    before = live.memory_bytes()
    wrong = frame(b'{"type":"req","id":"1","method":"connect","params":{}}')
    for _ in range(20):
        if problem := _closes(live, 1008, wrong * 500):
            return problem
    grown = live.memory_bytes() - before
    return "" if grown < 16 * MB else f"took {grown >> 20} MB"


def _http(status: set[int], *heads: str, body: bytes = b"") -> Callable[[Live], str]:
    def attempt(live: Live) -> str:
        for head in heads:
            found = live.http(head.format(host=live.host).encode("latin-1"), body)
            if found not in status:
                return f"answered {found}"
        return _still_serves(live)

    return attempt


_PARTS = b"--x\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n" * 100_000
_FORM = (
    "POST {path} HTTP/1.1\r\nHost: {{host}}\r\nContent-Type: multipart/form-data; boundary=x\r\n"
    f"Content-Length: {len(_PARTS)}"
)
_GET = "GET /health HTTP/1.1\r\nHost: {host}\r\n"

BEHAVIOURS: list[tuple[str, Callable[[Live], str]]] = [
    (r"binary frame", _binary),
    (r"invalid utf-8|bad utf8", _bad_utf8),
    (r"pre-auth", _large_unknown),
    (r"post-auth|oversize", _large_known),
    (r"fragment", _fragments),
    (r"deflate|compression", _compressed),
    (r"never reads|slow consumer", _never_read),
    (r"in-flight|dup id", _reused_id),
    (r"id type|10mb string", _odd_ids),
    (r"\bbom\b", _bom),
    (r"flood|/s\b", _flood),
    (r"multipart", _http({401, 404, 405, 413}, *(_FORM.format(path=p) for p in "/"), body=_PARTS)),
    (r"long uri|url path", _http({414}, f"GET /{'a' * 100_000} HTTP/1.1\r\nHost: {{host}}")),
    (r"crlf|header injection", _http({400}, f"{_GET}X-A: a\rX-B: b", f"{_GET}X-A: a\0b")),
]
