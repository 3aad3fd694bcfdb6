"""Chat services that call the gateway, over real sockets: who is heard, and what never is."""

import asyncio
import gzip
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from homarus.channels.base import WebhookResponse
from homarus.core.clock import SystemClock
from homarus.gateway.http_server import GatewayAsgiApp, HttpServer, open_sockets
from homarus.gateway.listen_address import ListenAddress
from homarus.gateway.webhooks import MAX_BYTES, MAX_LIVE_EACH, WebhookEndpoint
from tests.unit.gateway.builders import PATH, SECRET, Ear, FullDiskError
from tests.unit.gateway.harness import Harness, play

GUARD_S = 60.0
KNOWN = f"X-Telegram-Bot-Api-Secret-Token: {SECRET}"
JSON = "Content-Type: application/json"
BODY = json.dumps({"update_id": 1}).encode()


class Phone:
    """What a service calls with: raw bytes on one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def say(self, *lines: str, body: bytes = b"", path: str = PATH, verb: str = "POST") -> None:
        head = "\r\n".join([f"{verb} {path} HTTP/1.1", "Host: bot.example", *lines])
        self.writer.write(head.encode() + b"\r\n\r\n" + body)

    async def flood(self, megabytes: int = 64) -> None:
        for _ in range(megabytes << 4):
            self.writer.write(b"a" * (1 << 16))
            await self.writer.drain()

    async def status(self) -> int:
        """Of the next answer, which is read whole; 0 when there is none."""
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return 0
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                await self.reader.readexactly(int(line.split(b":")[1]))
        return int(head.split(b" ")[1])


class Line:
    """A gateway that serves on a port, and an account that listens there."""

    def __init__(self, stage: Harness, port: int, site: GatewayAsgiApp, ear: Ear) -> None:
        self.stage, self.port, self.site, self.ear = stage, port, site, ear

    @asynccontextmanager
    async def call(self) -> AsyncIterator[Phone]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            yield Phone(reader, writer)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def post(self, *lines: str, body: bytes = BODY, path: str = PATH) -> int:
        async with self.call() as phone:
            phone.say(f"Content-Length: {len(body)}", *lines, body=body, path=path)
            return await phone.status()


@asynccontextmanager
async def serve(folder: Path) -> AsyncIterator[Line]:
    async with play(folder) as stage:
        site = GatewayAsgiApp(stage.gateway)
        sockets = open_sockets(ListenAddress("127.0.0.1", 0))
        listener = HttpServer(site, sockets)
        await listener.start()
        try:
            async with asyncio.timeout(GUARD_S):
                ear = stage.program.channels.listen(Ear())
                yield Line(stage, sockets[0].getsockname()[1], site, ear)
        finally:
            await listener.stop()


async def test_webhook_with_the_secret_is_accepted_under_any_host(tmp_path: Path) -> None:
    async with serve(tmp_path) as line:
        assert await line.post(KNOWN, JSON) == 200
        assert line.ear.heard == [BODY]


async def test_webhook_connection_carries_many_requests(tmp_path: Path) -> None:
    async with serve(tmp_path) as line:
        async with line.call() as phone:
            for secret in (KNOWN, "X-A: b", KNOWN):
                phone.say(f"Content-Length: {len(BODY)}", secret, JSON, body=BODY)
            assert [await phone.status() for _ in range(3)] == [200, 401, 200]
        assert len(line.ear.heard) == 2


async def test_webhook_without_secret_is_refused_before_its_body_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with serve(tmp_path) as line:
        for given in ("X-Other: 1", "X-Telegram-Bot-Api-Secret-Token: wrong", f"{KNOWN}x"):
            async with line.call() as phone:
                phone.say("Content-Length: 900000", given, JSON)
                assert await phone.status() == 401
        assert await line.post(KNOWN, KNOWN, JSON) == 401  # twice is not the secret
        async with line.call() as phone:  # nor is it asked to go on
            phone.say("Content-Length: 900000", "Expect: 100-continue", JSON)
            assert await phone.status() == 401
        assert line.ear.heard == []
    told = {r.created for r in caplog.records if "without the right secret" in r.message}
    assert len(told) == 1 and SECRET not in caplog.text


async def test_webhook_with_secret_in_the_url_is_refused(tmp_path: Path) -> None:
    async with serve(tmp_path) as line:
        for query in (f"?token={SECRET}", f"?a=b&secret={SECRET}"):
            assert await line.post(JSON, path=PATH + query) == 400
            assert await line.post(KNOWN, JSON, path=PATH + query) == 400
        assert not line.ear.heard and not line.ear.admitted


async def test_webhook_from_a_page_is_refused(tmp_path: Path) -> None:
    async with serve(tmp_path) as line:
        assert await line.post(KNOWN, JSON, "Origin: https://evil.example") == 403
        assert await line.post(KNOWN, JSON, "Sec-Fetch-Mode: no-cors") == 403


@pytest.mark.parametrize(
    "path", ["/hook", "/hook/test/", "/hook/test/x", "/Hook/test", "/%68ook/test"]
)
async def test_webhook_path_must_match_exactly(tmp_path: Path, path: str) -> None:
    async with serve(tmp_path) as line:
        assert await line.post(KNOWN, JSON, path=path) in {401, 403, 404}
        assert line.ear.admitted == []


async def test_webhook_account_answers_a_challenge_by_get(tmp_path: Path) -> None:
    async with serve(tmp_path) as line, line.call() as phone:
        line.ear.response = WebhookResponse(200, b"4 2", "text/plain")
        phone.say(KNOWN, verb="GET", path=f"{PATH}?hub.challenge=4+2&a=1&a=2")
        head = await phone.reader.readuntil(b"\r\n\r\n")
        body = await phone.reader.readexactly(3)
    (request,) = line.ear.requests
    assert (request.method, request.path, request.body) == ("GET", PATH, b"")
    assert request.query == {"hub.challenge": "4 2", "a": "1"}
    assert (body, b"content-type: text/plain" in head.lower()) == (b"4 2", True)


async def test_webhook_by_get_without_secret_is_refused(tmp_path: Path) -> None:
    async with serve(tmp_path) as line, line.call() as phone:
        phone.say(verb="GET")
        assert await phone.status() == 401
        assert line.ear.requests == []


async def test_webhook_with_too_many_parameters_is_refused(tmp_path: Path) -> None:
    async with serve(tmp_path) as line, line.call() as phone:
        phone.say(KNOWN, verb="GET", path=f"{PATH}?{'&'.join(['a=1'] * 101)}")
        assert await phone.status() == 400
        assert line.ear.requests == []


async def test_webhook_accepts_only_get_and_post(tmp_path: Path) -> None:
    async with serve(tmp_path) as line:
        for verb in ("PUT", "DELETE", "OPTIONS"):
            async with line.call() as phone:
                phone.say(KNOWN, verb=verb)
                assert await phone.status() in {401, 403, 404}
        assert line.ear.admitted == []


async def test_webhook_declared_too_large_is_refused_at_once(tmp_path: Path) -> None:
    async with serve(tmp_path) as line:
        for size in (MAX_BYTES + 1, 1 << 30, 10**19):
            async with line.call() as phone:
                phone.say(f"Content-Length: {size}", KNOWN, JSON)
                assert await phone.status() == 413
        assert await line.post(KNOWN, JSON, body=json.dumps("a" * (MAX_BYTES - 2)).encode()) == 200


async def test_webhook_body_that_grows_too_large_is_cut(tmp_path: Path) -> None:
    async with serve(tmp_path) as line:
        async with line.call() as phone:
            phone.say("Transfer-Encoding: chunked", KNOWN, JSON)
            for _ in range(MAX_BYTES // 50_000 + 2):
                phone.writer.write(b"c350\r\n" + b"a" * 50_000 + b"\r\n")
            assert await phone.status() == 413
        assert line.ear.heard == []
        async with line.call() as phone:
            phone.say("Transfer-Encoding: chunked", KNOWN, JSON, body=b"2\r\n{}\r\n0\r\n\r\n")
            assert await phone.status() == 200
        assert line.ear.heard == [b"{}"]


async def test_webhook_client_sending_after_the_answer_is_disconnected(tmp_path: Path) -> None:
    async with serve(tmp_path) as line:
        async with line.call() as phone:
            phone.say(f"Content-Length: {1 << 30}", KNOWN, JSON)
            assert await phone.status() == 413
            with pytest.raises(ConnectionError):
                await phone.flood()
        assert await line.post(KNOWN, JSON) == 200


async def test_webhook_with_incomplete_body_is_dropped(tmp_path: Path) -> None:
    async with serve(tmp_path) as line:
        for framing, half in (
            ("Content-Length: 10", b'{"a":'),
            ("Transfer-Encoding: chunked", b"2\r\n{}\r\n"),
        ):
            async with line.call() as phone:
                phone.say(framing, KNOWN, JSON, body=half)
                phone.writer.write_eof()
                assert await phone.status() == 400
            async with line.call() as phone:  # gone altogether
                phone.say(framing, KNOWN, JSON, body=half)
                await phone.writer.drain()
        assert await line.post(KNOWN, JSON) == 200
        assert line.ear.heard == [BODY]


async def test_webhook_body_that_never_comes_times_out(tmp_path: Path) -> None:
    async with serve(tmp_path) as line:
        vars(line.site)["_webhooks"] = WebhookEndpoint(SystemClock(), body_timeout_s=0.01)
        async with line.call() as phone:
            phone.say("Content-Length: 10", KNOWN, JSON, body=b"{")
            assert await phone.status() == 408
        assert line.ear.heard == []


@pytest.mark.parametrize(
    "framing",
    [
        ("Content-Length: 2", "Transfer-Encoding: chunked"),
        ("Content-Length: 2", "Content-Length: 3"),
        ("Content-Length: -1",),
        ("Content-Length: 2, 2", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: chunked, gzip",),
    ],
)
async def test_webhook_with_two_or_no_lengths_closes_the_connection(
    tmp_path: Path, framing: tuple[str, ...]
) -> None:
    async with serve(tmp_path) as line:
        async with line.call() as phone:
            phone.say(*framing, KNOWN, JSON, body=b"0\r\n\r\n")
            assert await phone.status() in {400, 501}
            assert await phone.status() == 0
        assert not line.ear.heard and not line.ear.admitted


async def test_webhook_with_invalid_body_returns_400_without_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(tmp_path) as line:
        async with line.call() as phone:
            phone.say("Transfer-Encoding: chunked", KNOWN, JSON, body=b"zz\r\n")
            assert await phone.status() == 400
        async with line.call() as phone:  # after an answer that did not wait for the body
            phone.say("Transfer-Encoding: chunked", JSON)
            assert await phone.status() == 401
            phone.writer.write(b"zz\r\n")
            assert await phone.status() == 0
        assert await line.post(KNOWN, JSON, body=b"not json") == 400
    assert "Traceback" not in caplog.text and "Fatal" not in caplog.text


async def test_webhook_with_encoding_or_other_content_type_is_refused(tmp_path: Path) -> None:
    async with serve(tmp_path) as line:
        bomb = gzip.compress(b"0" * 50_000_000)
        assert await line.post(KNOWN, JSON, "Content-Encoding: gzip", body=bomb) == 415
        assert await line.post(KNOWN, JSON, "Content-Encoding: identity, br") == 415
        for kind in ("Content-Type: text/plain", "Content-Type: multipart/form-data", "X-A: b"):
            assert await line.post(KNOWN, kind) == 415
        assert await line.post(KNOWN, JSON, JSON) == 415
        assert await line.post(KNOWN, "Content-Type: Application/JSON; charset=utf-8") == 200
        assert len(line.ear.heard) == 1


async def test_webhook_that_cannot_be_stored_returns_503(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(tmp_path) as line:
        line.ear.failure = FullDiskError("the disk is full")
        assert await line.post(KNOWN, JSON) == 503
        line.ear.failure = None
        vars(line.site)["_webhooks"] = WebhookEndpoint(SystemClock(), handle_timeout_s=0.01)
        line.ear.open.clear()
        assert await line.post(KNOWN, JSON) == 503
        line.ear.open.set()
        vars(line.site)["_webhooks"] = WebhookEndpoint(SystemClock())  # with time enough
        assert await line.post(KNOWN, JSON) == 200
    assert "the disk is full" in caplog.text and "Traceback" not in caplog.text


async def test_webhook_with_bug_in_account_returns_500_and_logs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(tmp_path) as line:
        line.ear.failure = ZeroDivisionError("a bug")
        assert await line.post(KNOWN, JSON) == 500
        line.ear.failure, line.ear.status = None, 42
        assert await line.post(KNOWN, JSON) == 500
    assert "a bug" in caplog.text


async def test_webhooks_in_flight_are_bounded_and_excess_gets_503(tmp_path: Path) -> None:
    async with serve(tmp_path) as line:
        line.ear.open.clear()
        statuses: list[int] = []

        async def post() -> None:
            statuses.append(await line.post(KNOWN, JSON))

        async with asyncio.TaskGroup() as group:
            for _ in range(MAX_LIVE_EACH + 20):
                group.create_task(post())
            while len(statuses) < 20:  # noqa: ASYNC110 - nobody rings when this becomes true
                await asyncio.sleep(0.001)
            assert set(statuses) == {503}
            other = line.stage.program.channels.listen(Ear("/hook/other"))
            assert await line.post(KNOWN, JSON, path="/hook/other") == 200
            line.ear.open.set()
        assert sorted(statuses) == [200] * MAX_LIVE_EACH + [503] * 20
        assert len(line.ear.heard) == MAX_LIVE_EACH and len(other.heard) == 1
        assert line.site._webhooks.active_count == 0
        assert await line.post(KNOWN, JSON) == 200


async def test_webhook_during_startup_returns_503_with_retry_after(tmp_path: Path) -> None:
    async with play(tmp_path, ready=False) as stage:
        from tests.unit.gateway.test_http_server import get

        got = await get(GatewayAsgiApp(stage.gateway), PATH, verb="POST")
        assert (got.status, got.headers["retry-after"]) == (503, "2")
