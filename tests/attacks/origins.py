"""`ws_origin_host_auth`: foreign origins, DNS rebinding and scope escalation, on a live gateway."""

import hmac
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from homarus.gateway.auth import same_secret
from homarus.gateway.origin_policy import OriginPolicy, RequestBlockedError, RequestInfo
from tests.attacks.cases import Case, Judge, NotRunError
from tests.attacks.live import ALL_SCOPES, TOKEN, Caller, Live, configure, environment, gateway

READ = "operator.read"
FAR = ("X-Forwarded-For: 203.0.113.9",)  # makes a local client a remote one


@contextmanager
def world() -> Iterator[Judge]:
    """Run one gateway for all cases."""
    with gateway() as live:
        yield lambda case: _judge(live, case)


def _judge(live: Live, case: Case) -> str:
    if case.get("kind") != "auth":
        return _knock(live, case)
    for pattern, attempt in ATTEMPTS:
        if re.search(pattern, case["case"], re.IGNORECASE):
            return attempt(live)
    raise NotRunError(case["case"])


def _knock(live: Live, case: Case) -> str:
    """Send an upgrade with this Host and Origin; the port of the case is replaced by ours."""
    if case["origin"] and case["origin"] != case["origin"].strip(" "):
        return _knock_unread(case)  # HTTP ignores spaces around a value
    host, origin = (
        text if text is None else text.replace("18789", str(live.port))
        for text in (case["host"], case["origin"])
    )
    with Caller(live, host=host, origin=origin) as caller:
        if case["expected"] == "reject":
            return "" if 400 <= caller.status < 500 else _refused_on_socket(caller)
        if caller.status != 101:
            return f"refused with {caller.status}"
        if _is_ok(caller.connect("wrong")):
            return "came in with a wrong token"
    with Caller(live, host=host, origin=origin) as caller:
        return "" if _is_ok(caller.connect()) else "refused with the right token"


def _refused_on_socket(caller: Caller) -> str:
    """Return a problem unless the socket says, even to the right token, that the page may not."""
    if caller.status != 101:
        return f"answered {caller.status}"
    answer = caller.connect()
    told = "" if _is_ok(answer) else _message(answer)
    return "" if told.startswith("origin not allowed: ") else f"came in: {told or 'accepted'}"


def _knock_unread(case: Case) -> str:
    """Bypass the HTTP parser, as with a server that keeps the spaces."""
    headers = [(b"host", case["host"].encode()), (b"origin", case["origin"].encode())]
    try:
        OriginPolicy.from_config(18789).check(RequestInfo.read("127.0.0.1", headers))
    except RequestBlockedError:
        return "" if case["expected"] == "reject" else "refused"
    return "let in" if case["expected"] == "reject" else ""


def _is_ok(answer: Any) -> bool:
    return bool(answer.get("ok"))


def _message(answer: Any) -> str:
    return str(answer.get("error", {}).get("message", answer))


def _open_to_all(_live: Live) -> str:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        for config in ({"gateway": {"bind": "lan"}}, {"gateway": {"auth": {"mode": "none"}}}):
            configure(home, config)
            done = subprocess.run(
                [sys.executable, "-m", "homarus", "gateway", "run", "--port", "0", "--bind", "lan"],
                capture_output=True,
                text=True,
                timeout=30,
                env=environment(home),
                cwd=home,
                check=False,
            )
            if done.returncode != 2 or "without a token or a password" not in done.stderr:
                return f"ended with {done.returncode}: {done.stderr[:200]}"
    return ""


def _behind_a_proxy(live: Live) -> str:
    device = live.identity("proxied")
    for value in ("127.0.0.1", "203.0.113.9"):
        extra = (f"X-Forwarded-For: {value}",)
        with Caller(live, extra=extra) as caller:
            if (
                _message(caller.connect(identity=device, with_nonce=False))
                != "device nonce required"
            ):
                return "counts as local"
        with Caller(live, extra=extra) as caller:
            if "token missing" not in _message(caller.connect(None, identity=device)):
                return "came in without a token"
    return ""


def _guess(_live: Live) -> str:
    for extra in ({}, {"deviceToken": "bogus"}):
        with gateway() as live:  # a gateway of its own, which then rejects all pages for a while
            origin = f"http://{live.host}"
            for _ in range(10):
                with Caller(live, origin=origin) as caller:
                    answer = caller.connect("wrong", auth={"token": "wrong", **extra})
                    if "mismatch" not in _message(answer):
                        return f"a guess was answered {answer}"
            with Caller(live, origin=origin) as caller:
                error = caller.connect().get("error", {})
                if error.get("details") != {"code": "AUTH_RATE_LIMITED"}:
                    return f"no lockout: {error}"
                if not error.get("retryAfterMs"):
                    return "does not say how long to wait"
    return ""


def _odd_tokens(live: Live) -> str:
    odd: tuple[Any, ...] = ("wrong", "", [], True, None, {}, [TOKEN])
    for token in odd:
        with Caller(live) as caller:
            if _is_ok(caller.connect(token, identity=live.identity("odd"))):
                return f"came in with {token!r}"
    return ""


def _upgrade(live: Live) -> str:
    device = live.identity("upgrade")
    with Caller(live) as caller:
        answer = caller.connect(identity=device, scopes=(READ,))
        if answer["payload"]["auth"]["scopes"] != [READ]:
            return f"was given {answer['payload']['auth']['scopes']}"
    with Caller(live) as caller:
        answer = caller.connect(identity=device, scopes=(READ, "operator.admin"))
        code = answer.get("error", {}).get("code")
        return "" if code == "NOT_PAIRED" else f"answered {answer}"


def _rotate(live: Live) -> str:
    device = live.identity("rotated")
    with Caller(live) as owner, Caller(live) as holder:
        owner.connect(identity=live.identity("owner"))
        own = holder.connect(identity=device)["payload"]["auth"]["deviceToken"]
        with Caller(live, extra=FAR) as caller:
            if not _is_ok(caller.connect(own, identity=device)):
                return "its own token does not open"
        params = {"deviceId": device.device_id, "role": "operator"}
        answer = owner.ask("device.token.rotate", params)
        if not _is_ok(answer):
            return f"cannot rotate: {_message(answer)}"
        if holder.close_code() != 1008:
            return "the open connection was not closed"
    with Caller(live, extra=FAR) as caller:
        return "came in with the old token" if _is_ok(caller.connect(own, identity=device)) else ""


def _approve_twice(live: Live) -> str:
    device = live.identity("approved")
    with Caller(live, extra=FAR) as caller:
        error = caller.connect(identity=device).get("error", {})
        request = {"requestId": error.get("details", {}).get("requestId")}
    with Caller(live) as owner:
        owner.connect(identity=live.identity("owner"))
        first = owner.ask("device.pair.approve", request)
        second = owner.ask("device.pair.approve", request)
    if not _is_ok(first):
        return f"cannot approve: {_message(first)}"
    return "approved twice" if _is_ok(second) else ""


def _claim_to_own(live: Live) -> str:
    with Caller(live) as caller:
        if _is_ok(caller.connect(identity=live.identity("claims"), senderIsOwner=True)):
            return "the handshake takes it"
    with Caller(live) as caller:
        caller.connect(identity=live.identity("claims"))
        params = {"sessionKey": "main", "message": "/whoami", "idempotencyKey": "claim"}
        answer = caller.ask("chat.send", {**params, "senderIsOwner": True})
        return "a message takes it" if _is_ok(answer) else ""


def _before_connect(live: Live) -> str:
    with Caller(live) as caller:
        caller.json()
        answer = caller.ask("config.apply", {"raw": "{}", "baseHash": ""})
        if _is_ok(answer):
            return "was done"
        return "" if caller.close_code() == 1008 else "the connection stays open"


def _foreign_gateway(live: Live) -> str:
    head = f"GET /?gatewayUrl=wss://evil HTTP/1.1\r\nHost: {live.host}".encode()
    if live.http(head) != 200:
        raise NotRunError("the page")
    with Caller(live, path="/?gatewayUrl=wss://evil") as caller:
        if caller.status != 101:
            return f"answered {caller.status}"
    import homarus.gateway

    static = Path(str(homarus.gateway.__file__)).parent / "static"
    for file in static.glob("*"):
        if file.suffix in {".html", ".js"} and "gatewayurl" in file.read_text().lower():
            return f"{file.name} knows the parameter"
    policy = _header(live, "/", "content-security-policy")
    return "" if "connect-src 'self'" in policy else f"the page may connect elsewhere: {policy}"


def _header(live: Live, path: str, name: str) -> str:
    import urllib.request

    request = urllib.request.Request(f"http://{live.host}{path}")
    with urllib.request.urlopen(request, timeout=10) as response:
        return str(response.headers[name])


def _approve_in_chat(live: Live) -> str:
    with Caller(live) as caller:
        caller.connect(identity=live.identity("writer"), scopes=("operator.write",))
        params = {"sessionKey": "main", "message": "/approve x allow-once", "idempotencyKey": "ap"}
        message = _message(caller.ask("chat.send", params))
        return "" if message == "missing scope: operator.approvals" else f"answered {message}"


def _odd_paths(live: Live) -> str:
    wanted = "/api/channels/x"
    odd = ("/__proto__/..", "/%2e%2e", "/.", "/%2E%2e/x/..", "//", "/;", "/%00", "/a/../..")
    for path in (wanted, wanted.upper(), *(f"{start}{wanted}" for start in odd)):
        status = live.http(f"GET {path} HTTP/1.1\r\nHost: {live.host}".encode())
        if status not in {400, 401}:
            return f"{path} was answered {status}"
    right = f"GET {wanted} HTTP/1.1\r\nHost: {live.host}\r\nAuthorization: Bearer {TOKEN}"
    return "" if live.http(right.encode()) == 404 else "the right token is refused"


def _compare(_live: Live) -> str:
    with mock.patch.object(hmac, "compare_digest", wraps=hmac.compare_digest) as compare:
        same_secret("x", TOKEN)
    (call,) = compare.call_args_list
    return "" if {len(part) for part in call.args} == {32} else "not digests of one length"


def _in_the_query(live: Live) -> str:
    for query in (f"token={TOKEN}", f"a=b&TOKEN={TOKEN}", "password=x"):
        with Caller(live, path=f"/?{query}") as caller:
            if caller.status != 400:
                return f"?{query.partition('=')[0]} was answered {caller.status}"
        status = live.http(f"GET /health?{query} HTTP/1.1\r\nHost: {live.host}".encode())
        if status != 400:
            return f"HTTP answered {status}"
    log = "\n".join(p.read_text() for p in (live.home / ".openclaw").rglob("*.log"))
    return "the token is in the log" if TOKEN in log else ""


def _too_many_rights(live: Live) -> str:
    """A token without a device gives no scopes, whichever are requested."""
    with Caller(live) as caller:
        caller.connect(scopes=ALL_SCOPES)
        message = _message(caller.ask("config.get", {}))
        return "" if message.startswith("missing scope") else f"answered {message}"


ATTEMPTS: list[tuple[str, Callable[[Live], str]]] = [
    (r"bind\s*=?\s*(0\.0\.0\.0|lan)", _open_to_all),
    (r"forwarded|trustedprox|reverse", _behind_a_proxy),
    (r"wrong tokens|brute|lockout", _guess),
    (r"rotat|revo", _rotate),
    (r"setup code|twice", _approve_twice),
    (r"senderisowner|owner", _claim_to_own),
    (r"before (auth|connect)|without connect", _before_connect),
    (r"gatewayurl", _foreign_gateway),
    (r"/approve", _approve_in_chat),
    (r"__proto__|%2e", _odd_paths),
    (r"timing|compare", _compare),
    (r"\?token|query|url", _in_the_query),
    (r"self-declare|without device|no device", _too_many_rights),
    (r"asking|scope|upgrade", _upgrade),
    (r"auth[.:{ ]|token[:=]|empty token|presence", _odd_tokens),
]
