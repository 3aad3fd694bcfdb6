"""The HTTP API of the gateway process, over sockets: what hostile requests get."""

import json
import signal
import socket
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Any

import httpx2
import pytest

from homarus.core.message import Json
from tests.e2e.gateway import TOKEN, Gateway, change, wait_for
from tests.e2e.program import Home

pytestmark = pytest.mark.slow

MIB = 1 << 20
OWN = {"embeddings": {"enabled": True}, "toolsInvoke": {"enabled": True}}
CALL = {"tool": "write", "args": {"path": "a.txt", "content": "one"}}


@pytest.fixture
def served(start: Callable[..., Gateway], home: Home) -> Gateway:
    """A gateway with the endpoints on."""
    own = {"gateway": {"http": {"endpoints": OWN}}}
    (home.state / "homarus.json").write_text(json.dumps(own))
    return start().wait_ready()


def base(gateway: Gateway) -> str:
    return gateway.url.replace("ws://", "http://")


def connect(gateway: Gateway) -> socket.socket:
    host, _, port = base(gateway).removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=30)


def raw(gateway: Gateway, *lines: str, body: bytes = b"", token: str = TOKEN) -> bytes:
    """Send a request byte by byte as it is written; return all that comes back."""
    host = base(gateway).removeprefix("http://")
    auth = [f"Authorization: Bearer {token}"] if token else []
    head = [lines[0], f"Host: {host}", *auth, *lines[1:], "Connection: close", "", ""]
    with closing(connect(gateway)) as client:
        client.sendall("\r\n".join(head).encode("latin-1") + body)
        answer = b""
        while piece := client.recv(65_536):
            answer += piece
    return answer


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer else 0


def post(gateway: Gateway, path: str, body: Json, **headers: str) -> httpx2.Response:
    given = {"Authorization": f"Bearer {TOKEN}", **headers}
    return httpx2.post(f"{base(gateway)}{path}", json=body, headers=given, timeout=60)


def json_request(path: str = "/tools/invoke", *more: str) -> list[str]:
    return [f"POST {path} HTTP/1.1", "Content-Type: application/json", *more]


def workspace(gateway: Gateway) -> Any:
    return gateway.home.state / "workspace"


def test_api_is_off_by_default(gateway: Gateway) -> None:
    for path in ("/v1/models", "/v1/embeddings", "/tools/invoke", "/openapi.json"):
        answer = httpx2.get(f"{base(gateway)}{path}", headers={"Authorization": f"Bearer {TOKEN}"})
        assert answer.status_code == 404 and "turned off" in answer.text, path
        assert httpx2.get(f"{base(gateway)}{path}").status_code == 401


def test_api_serves_what_a_changed_config_turns_on(gateway: Gateway) -> None:
    file = gateway.home.state / "homarus.json"
    file.write_text(json.dumps({"gateway": {"http": {"endpoints": OWN}}}))
    wait_for(lambda: post(gateway, "/tools/invoke", CALL).status_code == 200)
    file.write_text(json.dumps({"gateway": {"http": {"endpoints": {}}}}))
    wait_for(lambda: post(gateway, "/tools/invoke", CALL).status_code == 404)
    assert "restarting" not in gateway.output


@pytest.mark.parametrize(
    "path",
    [
        "/tools/invoke/", "//tools/invoke", "/tools//invoke", "/TOOLS/invoke", "/tools/./invoke",
        "/x/../tools/invoke", "/tools/invoke;a", "/tools/invoke%00", "/tools%252finvoke",
        "/tools\\invoke", "/tools/invoke%20", "*",
    ],
)  # fmt: skip
def test_api_path_in_another_spelling_runs_nothing(path: str, served: Gateway) -> None:
    body = json.dumps(CALL).encode()
    lines = [*json_request(path), f"Content-Length: {len(body)}"]
    assert status(raw(served, *lines, body=body)) in {400, 404}
    assert status(raw(served, *lines, body=body, token="")) in {400, 401}
    assert not (workspace(served) / "a.txt").exists()


@pytest.mark.parametrize("token", ["", "wrong", f"{TOKEN}x", TOKEN[:-1], TOKEN.upper()])
def test_api_without_the_token_reads_no_body(token: str, served: Gateway) -> None:
    answer = raw(served, *json_request(), "Content-Length: 99999999", token=token)
    assert status(answer) == 401 and b"unauthorized" in answer


def test_api_smuggled_requests_run_nothing(served: Gateway) -> None:
    body = json.dumps(CALL).encode()
    inner = b"\r\n".join([*(line.encode() for line in json_request()), b"", body])
    cases = [
        [f"Content-Length: {len(body)}", "Transfer-Encoding: chunked"],
        [f"Content-Length: {len(body)}", "Content-Length: 0"],
        ["Transfer-Encoding: chunked, identity"],
        ["Transfer-Encoding: xchunked"],
        ["Transfer-Encoding : chunked"],
        [f"Content-Length: +{len(body)}"],
        [f"Content-Length: {len(body)}", "Authorization: Bearer other"],
        [f"Content-Length: {len(body)}", "Host: evil.example"],
    ]
    for lines in cases:
        answer = raw(served, *json_request(), *lines, body=body + inner)
        assert status(answer) in {400, 501}, lines
        assert answer.count(b"HTTP/1.1 2") == 0, lines
    assert not (workspace(served) / "a.txt").exists()


def test_api_request_of_another_origin_is_refused(served: Gateway) -> None:
    for origin in ("https://evil.example", "null", "http://localhost:1", "http://127.0.0.1"):
        answer = post(served, "/tools/invoke", CALL, Origin=origin)
        assert answer.status_code == 403, origin
        assert "access-control-allow-origin" not in answer.headers
        preflight = httpx2.request(
            "OPTIONS", f"{base(served)}/tools/invoke",
            headers={"Origin": origin, "Access-Control-Request-Method": "POST"},
        )  # fmt: skip
        assert preflight.status_code == 403
    assert post(served, "/tools/invoke", CALL, Host="evil.example").status_code == 403
    assert not (workspace(served) / "a.txt").exists()


def test_api_form_of_a_page_is_refused(served: Gateway) -> None:
    # What a page may send without asking first: it has no token, and these types are not read.
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        answer = httpx2.post(
            f"{base(served)}/tools/invoke", content=json.dumps(CALL),
            headers={"Content-Type": kind, "Authorization": f"Bearer {TOKEN}"},
        )  # fmt: skip
        assert answer.status_code == 415, kind


def test_api_body_that_is_too_large_is_refused_early(served: Gateway) -> None:
    declared = raw(served, *json_request(), f"Content-Length: {3 * MIB}")
    assert status(declared) == 413
    chunk = b"%x\r\n%s\r\n" % (MIB, b"x" * MIB)
    with closing(connect(served)) as client:
        head = [*json_request(), "Transfer-Encoding: chunked", f"Authorization: Bearer {TOKEN}"]
        host = f"Host: {base(served).removeprefix('http://')}"
        client.sendall("\r\n".join([head[0], host, *head[1:], "", ""]).encode())
        sent = 0
        try:
            for _ in range(200):
                client.sendall(chunk)
                sent += 1
        except OSError:
            pass
        assert sent < 200, "the connection is closed long before all was sent"
    assert post(served, "/tools/invoke", CALL).status_code == 200


def test_api_body_that_is_large_and_fine_is_read(served: Gateway) -> None:
    text = "x" * (MIB + MIB // 2)
    call = {"tool": "write", "args": {"path": "large.txt", "content": text}}
    answer = post(served, "/tools/invoke", call)
    assert answer.status_code == 200, answer.text
    assert (workspace(served) / "large.txt").read_text() == text


def test_api_deep_and_repeated_json_is_refused(served: Gateway) -> None:
    for text in (
        '{"tool":"ls","args":' + '{"a":' * 5_000 + "1" + "}" * 5_001,
        '{"tool":"ls","args":' + "[" * 500_000,
        '{"tool":"ls","tool":"write"}',
        '{"tool":"ls","args":{"path":"a","path":"b"}}',
        '{"tool":"ls","args":{"n":1e999}}',
        '{"tool":"\\ud800"}',
        "﻿{}",
    ):
        answer = httpx2.post(
            f"{base(served)}/tools/invoke", content=text.encode("utf-8"),
            headers={"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"},
        )  # fmt: skip
        assert answer.status_code in {400, 404}, text[:80]
    assert post(served, "/tools/invoke", CALL).status_code == 200


def test_api_clients_of_one_address_are_not_limited_as_strangers(served: Gateway) -> None:
    """More connections than an address may have without a token; each is kept open."""
    host = base(served).removeprefix("http://")
    request = f"GET /v1/models HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    clients = list[socket.socket]()
    try:
        for _ in range(150):
            clients.append(connect(served))
            clients[-1].sendall(request.encode())
            assert clients[-1].recv(12) == b"HTTP/1.1 200"
    finally:
        for client in clients:
            client.close()


def test_api_key_runs_a_tool_once_across_kill(
    served: Gateway, start: Callable[..., Gateway]
) -> None:
    change(
        served.home,
        gateway={"auth": {"token": TOKEN}, "tools": {"allow": ["exec"]}},
        tools={"exec": {"security": "full", "ask": "off", "host": "gateway"}},
    )
    call = {"tool": "exec", "args": {"command": "echo one >> runs; sleep 30"}}
    runs = workspace(served) / "runs"

    def send() -> int:
        try:
            answer = post(served, "/tools/invoke", call, **{"Idempotency-Key": "k"})
        except httpx2.HTTPError:
            return 0
        return answer.status_code

    sent = list[Future[int]]()
    with ThreadPoolExecutor(1) as pool:
        while not runs.exists():  # until the changed config is in use
            sent.append(pool.submit(send))
            wait_for(lambda: sent[-1].done() or runs.exists())
        served.process.send_signal(signal.SIGKILL)
        served.process.wait()
        assert sent[-1].result() == 0
    again = start().wait_ready(2)
    answer = post(again, "/tools/invoke", call, **{"Idempotency-Key": "k"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "outcome_unknown")
    assert runs.read_text() == "one\n"
