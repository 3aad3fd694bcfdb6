"""No client can fill the gateway's memory or keep others out without being authenticated.

An address has at most 64 connections without an authenticated client. Frames have at most 64 KiB
before the authentication and 1 MiB for a client without scopes; pings, fragments and unread
responses are bounded. Each flood adds at most 20 MB to the memory of the process.
"""

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.attacks.live import CLOSE, CONTINUED, TEXT, Caller, Live, frame, gateway

MAX_ADDED_BYTES = 20_000_000
PING = 9
LIMIT = 64


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    with gateway() as found:
        for _ in range(3):  # what the first clients and frames allocate once is no attack
            with Caller(found) as caller:
                assert caller.connect(identity=found.identity())["ok"]
                caller.ask("health")
        yield found


@contextmanager
def bounded_memory(live: Live) -> Iterator[None]:
    """Check the peak of the gateway's memory while the block runs."""
    Path(f"/proc/{live.pid}/clear_refs").write_text("5")  # resets the peak
    before = live.memory_bytes()
    yield
    status = Path(f"/proc/{live.pid}/status").read_text()
    peak = int(status.partition("VmHWM:")[2].split()[0]) * 1024
    assert peak - before < MAX_ADDED_BYTES, f"{(peak - before) / 1e6:.1f} MB added"


def check_usable(live: Live) -> None:
    """Check that the owner can connect and is answered."""
    with Caller(live) as caller:
        assert caller.connect(identity=live.identity())["ok"]
        assert caller.ask("health")["ok"]


def pour(sock: socket.socket, data: bytes, times: int, seconds: float = 3.0) -> bool:
    """Send data again and again without reading; return whether the gateway hung up."""
    sock.settimeout(0.5)
    deadline = time.monotonic() + seconds
    for _ in range(times):
        if time.monotonic() > deadline:
            return False
        try:
            sock.sendall(data)
        except TimeoutError:
            continue  # it reads no more, and has not hung up yet
        except OSError:
            return True
    return False


def hangs_up(caller: Caller) -> bool:
    """Read until the gateway ends the connection."""
    caller.sock.settimeout(20)
    with suppress(TimeoutError):
        while caller.read()[0] != CLOSE:
            pass
        return True
    return False


def open_files(live: Live) -> int:
    return sum(1 for _ in Path(f"/proc/{live.pid}/fd").iterdir())


def test_half_open_sockets_of_one_address_keep_no_one_out(live: Live) -> None:
    before = open_files(live)
    with ExitStack() as stack, bounded_memory(live):
        owner = stack.enter_context(Caller(live))
        assert owner.connect(identity=live.identity())["ok"]
        held = [
            stack.enter_context(socket.create_connection(("127.0.0.1", live.port), 20))
            for _ in range(2_100)
        ]
        for number, sock in enumerate(held):
            with suppress(OSError):
                sock.sendall(b"GET / HTTP/1.1\r\nHost: " if number % 2 else b"G")
        check_usable(live)  # from the same address
        with socket.create_connection(
            ("127.0.0.1", live.port), 20, source_address=("127.0.0.2", 0)
        ) as other:
            other.sendall(b"GET /health HTTP/1.1\r\nHost: " + live.host.encode() + b"\r\n\r\n")
            assert b" 200 " in other.recv(1_000)
        assert owner.ask("health")["ok"], "an authenticated connection is not counted"
        assert open_files(live) - before <= LIMIT + 5


def test_silent_websockets_of_one_address_keep_no_one_out(live: Live) -> None:
    before = open_files(live)
    with ExitStack() as stack, bounded_memory(live):
        silent = [stack.enter_context(Caller(live)) for _ in range(LIMIT + 40)]
        assert open_files(live) - before <= LIMIT + 2
        assert hangs_up(silent[0]), "the oldest makes room"
        check_usable(live)
        assert silent[-1].json()["event"] == "connect.challenge"


def test_authenticated_connections_are_not_counted(live: Live) -> None:
    with ExitStack() as stack:
        callers = [stack.enter_context(Caller(live)) for _ in range(LIMIT - 4)]
        for caller in callers:
            assert caller.connect(identity=live.identity())["ok"]
        more = [stack.enter_context(Caller(live)) for _ in range(LIMIT + 5)]
        assert more[-1].json()["event"] == "connect.challenge"
        assert all(caller.ask("health")["ok"] for caller in callers)


def no_scopes(caller: Caller) -> None:
    assert caller.connect()["ok"]  # the token alone, without a device


def no_hello(caller: Caller) -> None:
    caller.json()


STATES = pytest.mark.parametrize("state", [no_hello, no_scopes])


@STATES
def test_ping_flood_is_bounded_and_ended(live: Live, state: Callable[[Caller], None]) -> None:
    pings = frame(b"x" * 125, PING) * 500 + frame(b"", PING) * 5_000
    with bounded_memory(live), Caller(live) as caller:
        state(caller)
        pour(caller.sock, pings, 500)
        assert hangs_up(caller)
    check_usable(live)


def test_few_pings_are_answered(live: Live) -> None:
    with Caller(live) as caller:
        no_scopes(caller)
        for number in range(20):
            caller.send(str(number).encode(), PING)
            kind, payload = caller.read()
            while kind == TEXT:
                kind, payload = caller.read()
            assert (kind, payload) == (10, str(number).encode())


@STATES
def test_empty_fragments_are_bounded(live: Live, state: Callable[[Caller], None]) -> None:
    with bounded_memory(live), Caller(live) as caller:
        state(caller)
        caller.send(b"{", TEXT, fin=False)
        pour(caller.sock, frame(b"", CONTINUED, fin=False) * 2_000, 200)
        assert hangs_up(caller)
    check_usable(live)


@pytest.mark.parametrize(
    ("state", "limit"), [(no_hello, 64 * 1024), (no_scopes, 1024 * 1024)], ids=["hello", "none"]
)
def test_frame_beyond_the_limit_ends_the_connection(
    live: Live, state: Callable[[Caller], None], limit: int
) -> None:
    with bounded_memory(live):
        for size in (limit + 1, 25 * 1024 * 1024):
            with Caller(live) as caller:
                state(caller)
                caller.send(b" " * size)
                assert caller.close_code() in {1006, 1009}
    check_usable(live)


@pytest.mark.parametrize("value", ["[]", '{"a":1}', '"a"', "1", "[[[[[]]]]]"])
def test_largest_frame_without_scopes_is_bounded_in_memory(live: Live, value: str) -> None:
    head = '{"type":"req","id":"1","method":"health","params":{"a":['
    body = ",".join([value] * ((1024 * 1024 - 100) // (len(value) + 1)))
    with bounded_memory(live), Caller(live) as caller:
        no_scopes(caller)
        for _ in range(10):
            caller.send(head + body + "]}}")
            while (found := caller.json())["type"] != "res":
                pass
            assert not found["ok"]
    check_usable(live)


def test_client_with_scopes_may_send_large_frames(live: Live) -> None:
    with Caller(live) as caller:
        hello = caller.connect(identity=live.identity())
        assert hello["payload"]["policy"]["maxPayload"] == 25 * 1024 * 1024
        answer = caller.ask("chat.send", {"sessionKey": "main", "message": "x" * 3_000_000})
        assert "idempotencyKey" in answer["error"]["message"], "it was read"
    with Caller(live) as caller:
        assert caller.connect()["payload"]["policy"]["maxPayload"] == 1024 * 1024


def test_unread_responses_to_a_client_without_scopes_are_bounded(live: Live) -> None:
    requests = b"".join(
        frame(json.dumps({"type": "req", "id": f"{n}{'x' * 200}", "method": "health"}).encode())
        for n in range(200)
    )
    with bounded_memory(live), Caller(live) as caller:
        no_scopes(caller)
        pour(caller.sock, requests, 2_000, seconds=6)
    check_usable(live)
