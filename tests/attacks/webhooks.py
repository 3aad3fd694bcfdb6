"""`webhook_signature`: forged, replayed and oversized requests of chat services.

Signatures are checked by the functions that channels use; cases about the transport are sent to a
gateway with an account that receives webhooks.
"""

import asyncio
import base64
import gzip
import hmac
import json
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from urllib.parse import parse_qsl, urlsplit

from homarus.channels import signatures, slack
from homarus.channels.base import ChannelContext, WebhookRequest
from homarus.channels.signatures import ReplayGuard
from homarus.core.clock import SystemClock
from homarus.gateway.auth_rate_limiter import MAX_SOURCES, AuthRateLimiter, ClientSource
from homarus.testing.clock import FakeClock
from tests.attacks.cases import Case, Judge, NotRunError
from tests.attacks.listening import PATH, SECRET
from tests.attacks.live import Live, gateway

MB = 1 << 20
KNOWN = f"X-Telegram-Bot-Api-Secret-Token: {SECRET}\r\nContent-Type: application/json"
BODY = b'{"update_id":1}'


@contextmanager
def world() -> Iterator[Judge]:
    """Run one gateway for the cases about the transport, behind a proxy as webhooks are."""
    with gateway("tests.attacks.listening", trustedProxies=["127.0.0.1"]) as live:
        yield lambda case: _judge(live, case)


def _judge(live: Live, case: Case) -> str:
    if case["scheme"] == "transport":
        for pattern, attempt in ATTEMPTS:
            if re.search(pattern, case["note"], re.IGNORECASE):
                return attempt(live) or _still_hears(live)
        raise NotRunError(case["note"])
    if "in query" in case["note"]:
        return _in_the_query(live, case)
    marks = [_check(case, again=again) for again in range(case.get("repeat", 2))]
    found = "accept" if all(marks) else "reject"
    if case["expected"] == "dedupe" and found == "accept":
        seen = ReplayGuard()
        if [seen.is_new(str(mark)) for mark in marks] == [True, *[False] * (len(marks) - 1)]:
            found = "dedupe"
    return "" if found == case["expected"] else f"the outcome is {found}"


def _check(case: Case, *, again: int) -> str | bool | None:
    """Return the signature of the request; `again` is how often it was sent before."""
    headers = {name.lower(): value for name, value in case["headers"].items()}
    body, secret = case.get("body", "").encode(), case.get("secret") or ""
    key = base64.b64decode(case.get("public_key_b64") or "")
    form, now_s = list(case.get("form", {}).items()), float(case.get("now", 0))
    match case["scheme"]:
        case "github":
            return signatures.verify_github(headers, body, secret)
        case "slack":
            return _check_slack(headers, body, secret, now_s)
        case "line":
            return signatures.verify_line(headers, body, secret)
        case "twilio":  # a proxy adds a new id to every request
            headers["i-twilio-idempotency-token"] = str(again)
            return signatures.verify_twilio(headers, case["url"], form, secret)
        case "plivo_v3":
            return _check_plivo(case["url"], secret, again=again)
        case "telegram_secret_token":
            return signatures.verify_telegram(headers, secret)
        case "telnyx_ed25519":
            return signatures.verify_telnyx(headers, body, key, now_s)
        case "discord_ed25519":
            return signatures.verify_discord(headers, body, key, now_s)
    raise NotRunError(case["scheme"])


def _check_slack(headers: dict[str, str], body: bytes, secret: str, now_s: float) -> str | None:
    """Send the request to an account of Slack; return its mark if the account accepts it."""
    section = {"mode": "http", "botToken": "xoxb-1", "signingSecret": secret or "another"}
    clock = FakeClock(at_ms=int(now_s * 1000))
    account = slack.create(ChannelContext("slack", "default", clock), slack.Settings.read(section))
    request = WebhookRequest("POST", account.path, headers=headers, body=body)
    answer = asyncio.run(account.handle_webhook(request))
    mark = signatures.verify_slack(headers, body, secret, now_s)
    assert (answer.status == 401) == (mark is None), f"the account answers {answer.status}"
    return mark


def _check_plivo(url: str, secret: str, *, again: int) -> str | None:
    """The case has no signature: it is about the order of query parameters in replays."""
    base, _, query = url.partition("?")
    pairs = parse_qsl(urlsplit(url).query)
    signed = base + "?" + "&".join(f"{name}={value}" for name, value in sorted(pairs))
    signature = base64.b64encode(hmac.digest(secret.encode(), f"{signed}.1".encode(), "sha256"))
    headers = {"x-plivo-signature-v3": signature.decode(), "x-plivo-signature-v3-nonce": "1"}
    parts = query.split("&")
    turned = "&".join(parts[again % len(parts) :] + parts[: again % len(parts)])
    return signatures.verify_plivo(headers, f"{base}?{turned}", (), secret)


def _in_the_query(live: Live, case: Case) -> str:
    """Send a secret in the wrong place, to the check and over HTTP."""
    if _check(case, again=0):
        return "the check takes it"
    query = case["url"].partition("?")[2]
    status = _post(live, "Content-Type: application/json", path=f"{PATH}?{query}")
    return "" if status == 400 and not _heard(live) else f"answered {status}"


def _post(live: Live, headers: str = KNOWN, body: bytes = BODY, *, path: str = PATH) -> int:
    length = "" if "Transfer-Encoding" in headers else f"\r\nContent-Length: {len(body)}"
    return live.http(f"POST {path} HTTP/1.1\r\nHost: a.example\r\n{headers}{length}".encode(), body)


def _heard(live: Live) -> int:
    file = live.home / "heard"
    return len(file.read_text(encoding="utf-8").splitlines()) if file.exists() else 0


def _still_hears(live: Live) -> str:
    before = _heard(live)
    status = _post(live)
    return "" if status == 200 and _heard(live) == before + 1 else f"then it answered {status}"


@contextmanager
def _calls(live: Live, head: str, count: int = 1) -> Iterator[list[socket.socket]]:
    """The requests that were started."""
    with ExitStack() as stack:
        socks = [
            stack.enter_context(socket.create_connection(("127.0.0.1", live.port), 30.0))
            for _ in range(count)
        ]
        for sock in socks:
            sock.sendall(f"POST {PATH} HTTP/1.1\r\nHost: a.example\r\n{head}\r\n\r\n".encode())
        yield socks


def _status(sock: socket.socket) -> int:
    with suppress(ConnectionError):
        found = re.match(rb"HTTP/1\.1 (\d{3})", sock.recv(4_096))
        return int(found[1]) if found else 0
    return 0


def _flood(sock: socket.socket, piece: bytes, megabytes: int) -> None:
    with suppress(ConnectionError):
        for _ in range(megabytes * MB // len(piece)):
            sock.sendall(piece)


def _huge(live: Live) -> str:
    before, heard = live.memory_bytes(), _heard(live)
    with _calls(live, f"{KNOWN}\r\nContent-Length: {1 << 30}") as (sock,):
        if (status := _status(sock)) != 413:
            return f"answered {status} by its length"
        _flood(sock, b"a" * 65_536, 64)
    with _calls(live, f"{KNOWN}\r\nTransfer-Encoding: chunked") as (sock,):
        _flood(sock, b"10000\r\n" + b"a" * 65_536 + b"\r\n", 2)
        if (status := _status(sock)) != 413:
            return f"answered {status} while it grows"
    with _calls(live, f"Content-Type: application/json\r\nContent-Length: {1 << 30}") as (sock,):
        if (status := _status(sock)) != 401:
            return f"a stranger was answered {status}"
    grown = live.memory_bytes() - before
    if _heard(live) != heard:
        return "a part of it was heard"
    return "" if grown < 16 * MB else f"took {grown // MB} MB"


def _many(live: Live) -> str:
    before = live.memory_bytes()
    with _calls(live, "Content-Type: application/json\r\nContent-Length: 900000", 200) as socks:
        for sock in socks:
            with suppress(ConnectionError):
                sock.sendall(b"a" * 10_000)
        if (found := {_status(sock) for sock in socks}) != {401}:
            return f"strangers were answered {found}"
    with _calls(live, f"{KNOWN}\r\nContent-Length: 900000", 200) as socks:
        if (found := {_status(sock) for sock in socks[100:]}) != {503}:
            return f"those beyond the bound were answered {found}"
        grown = live.memory_bytes() - before
    return "" if grown < 32 * MB else f"took {grown // MB} MB"


def _many_sources(_live: Live) -> str:
    limiter, seen = AuthRateLimiter(SystemClock()), ReplayGuard()
    for number in range(MAX_SOURCES + 5_000):
        ip = f"{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}.1"
        limiter.record_failure(ClientSource(ip, "hook-token", is_browser=False, is_local=False))
        seen.is_new(ip)
    if limiter.sources > MAX_SOURCES:
        return f"{limiter.sources} sources are remembered"
    return "" if len(seen) == signatures.MAX_MARKS else f"{len(seen)} marks are remembered"


def _bomb(live: Live) -> str:
    before = live.memory_bytes()
    bomb = gzip.compress(json.dumps("0" * (200 * MB)).encode())
    status = _post(live, f"{KNOWN}\r\nContent-Encoding: gzip", bomb)
    grown = live.memory_bytes() - before
    if status not in {413, 415}:
        return f"answered {status}"
    return "" if grown < 16 * MB else f"took {grown // MB} MB"


def _half(live: Live) -> str:
    heard = _heard(live)
    with _calls(live, f"{KNOWN}\r\nContent-Length: 10") as (sock,):
        sock.sendall(b"12345")
        sock.shutdown(socket.SHUT_WR)
        if (status := _status(sock)) != 400:
            return f"answered {status}"
    with _calls(live, f"{KNOWN}\r\nContent-Length: 10") as (sock,):
        sock.sendall(b"12345")
    return "half of it was heard" if _heard(live) != heard else ""


def _answered(*statuses: int, headers: str, body: bytes = BODY) -> Callable[[Live], str]:
    def attempt(live: Live) -> str:
        heard = _heard(live)
        status = _post(live, headers, body)
        if status not in statuses:
            return f"answered {status}"
        return "it was heard" if _heard(live) != heard else ""

    return attempt


_SECRET_ONLY = KNOWN.partition("\r\n")[0]
_CHUNK = f"{len(BODY):x}\r\n".encode() + BODY + b"\r\n0\r\n\r\n"
_BOTH = f"{KNOWN}\r\nContent-Length: 5\r\nTransfer-Encoding: chunked"
ATTEMPTS: list[tuple[str, Callable[[Live], str]]] = [
    (r"1 GB", _huge),
    (r"concurrent", _many),
    (r"source keys", _many_sources),
    (r"gzip", _bomb),
    (r"sends 5", _half),
    (r"transfer-encoding", _answered(400, headers=_BOTH, body=_CHUNK)),
    (r"text/plain", _answered(415, headers=f"{_SECRET_ONLY}\r\nContent-Type: text/plain")),
]
