"""Bedrock end to end: accounts, signatures, cancelling, and errors for what is missing."""

import asyncio
import datetime
import json
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import botocore.auth
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from homarus.config.model_refs import ModelRef
from homarus.config.paths import Paths
from homarus.config.schema import Config
from homarus.core.clock import SystemClock
from homarus.core.errors import (
    AuthError,
    BadRequestError,
    ProviderError,
    UnreachableError,
    UserError,
)
from homarus.core.message import Image, Message, ToolCall, user_message
from homarus.providers import bedrock
from homarus.providers.aws import SIGN_IN, Signer
from homarus.providers.base import ModelRequest, TextDelta, ToolSpec
from homarus.providers.bedrock_stream import ConverseStreamAssembler
from homarus.providers.catalog import VENDORS, ModelInfo, Price, lookup_model
from homarus.providers.eventstream import FrameReader
from homarus.providers.model_router import ModelRouter, ModelSelection
from homarus.providers.provider_errors import ErrorContext
from homarus.providers.resolution import lacks_account, needs_key
from homarus.testing.model_server import (
    CallTools,
    Delay,
    Fail,
    HangUntilDisconnect,
    ModelServer,
    ReceivedRequest,
    ReportedUsage,
    Say,
    ScriptedCall,
    ScriptStep,
)
from homarus.testing.model_server.bedrock import event
from tests.unit.providers.builders import first_of

MODEL = "us.anthropic.claude-haiku-4-5-20251001-v1:0"
KEYS = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "a-secret-of-forty-letters"}
ASK = ModelRequest(
    MODEL, "Be brief.", (user_message("hé \0 🦞", Image("iVBORw0KGgo=", "image/png")),)
)
NOBODY = ErrorContext("mock", "m", "somewhere")


@pytest.fixture(autouse=True)
def no_account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever account this machine has is not to be found."""
    for name in ("CONFIG", "SHARED_CREDENTIALS"):
        monkeypatch.setenv(f"AWS_{name}_FILE", str(tmp_path / name.lower()))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in (*KEYS, "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("AWS_BEARER_TOKEN_BEDROCK", raising=False)


async def last(provider: bedrock.BedrockProvider, request: ModelRequest = ASK) -> Message:
    try:
        pieces = [piece async for piece in provider.stream(request)]
    finally:
        await provider.close()
    assert isinstance(pieces[-1], Message)
    return pieces[-1]


async def received(
    *steps: ScriptStep,
    request: ModelRequest = ASK,
    env: Mapping[str, str] = KEYS,
    key: str = "",
    **told: Any,
) -> tuple[Message, ReceivedRequest]:
    async with asyncio.timeout(30), ModelServer() as server:
        server.script(list(steps) or [Say("ok")])
        settings = bedrock.ProviderConnection("mock", server.url, key, **told)
        return await last(bedrock.create(replace(settings, env=env)), request), server.requests[0]


async def failed(
    *steps: ScriptStep, request: ModelRequest = ASK, env: Mapping[str, str] = KEYS, key: str = ""
) -> Any:
    with pytest.raises(ProviderError) as caught:
        await received(*steps, request=request, env=env, key=key)
    return caught.value


def signature_of(
    got: ReceivedRequest,
    body: bytes,
    keys: Credentials,
    region: str,
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    """What AWS would compute for the request as it arrived."""
    date = got.headers["x-amz-date"]
    names = got.headers["authorization"].split("SignedHeaders=")[1].split(",")[0].split(";")
    headers = {name: got.headers[name] for name in names if name not in {"host", "x-amz-date"}}
    headers.pop("x-amz-security-token", None)
    request = AWSRequest("POST", f"http://{got.headers['host']}{got.path}", headers, body)
    at = datetime.datetime.strptime(date, "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.UTC)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda *_: at)
    SigV4Auth(keys, "bedrock", region).add_auth(request)
    return str(request.headers["Authorization"])


async def test_signed_request_body_is_what_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our client changes neither path, nor headers, nor body on the way."""
    bodies: list[bytes] = []
    sign = Signer.sign

    def spying(signer: Signer, fields: Any, subject: ErrorContext) -> Any:
        signed = sign(signer, fields, subject)
        bodies.append(signed.body)
        return signed

    monkeypatch.setattr(Signer, "sign", spying)
    env = {**KEYS, "AWS_SESSION_TOKEN": "a-session-token", "AWS_REGION": "eu-west-3"}
    _, got = await received(env=env)
    assert json.loads(bodies[0]) == got.body
    keys = Credentials(*KEYS.values(), token="a-session-token")
    assert got.path.endswith("/model/us.anthropic.claude-haiku-4-5-20251001-v1%3A0/converse-stream")
    assert "/eu-west-3/bedrock/aws4_request" in got.headers["authorization"]
    expected = signature_of(got, bodies[0], keys, "eu-west-3", monkeypatch)
    assert got.headers["authorization"] == expected
    assert got.headers["x-amz-security-token"] == "a-session-token"
    assert got.headers["accept"] == "application/vnd.amazon.eventstream"
    assert got.headers["user-agent"] == "homarus"


def test_no_address_uses_endpoint_of_region() -> None:
    def origin(env: Mapping[str, str]) -> str:
        signed = Signer("", {**KEYS, **env}, bearer=False).sign(
            {"modelId": "m", "messages": []}, NOBODY
        )
        return signed.origin

    assert origin({}) == "https://bedrock-runtime.us-east-1.amazonaws.com"
    assert (
        origin({"AWS_REGION": "eu-north-1"}) == "https://bedrock-runtime.eu-north-1.amazonaws.com"
    )
    beijing = origin({"AWS_DEFAULT_REGION": "cn-north-1"})
    assert urlsplit(beijing).hostname == "bedrock-runtime.cn-north-1.amazonaws.com.cn"


async def test_api_key_sent_as_bearer_without_signing() -> None:
    _, got = await received(env={}, key=" ABSKexample ", headers={"X-Team": "a"})
    assert got.headers["authorization"] == "Bearer ABSKexample"
    assert got.headers["x-team"] == "a"
    assert "x-amz-date" not in got.headers


async def test_aws_profile_is_resolved_like_aws_tools(tmp_path: Path) -> None:
    """botocore's own chain: a profile whose credentials a program prints, with its region."""
    told = {"Version": 1, "AccessKeyId": "AKIDPROFILE", "SecretAccessKey": "s"}
    program = tmp_path / "lend"
    program.write_text(f"#!/bin/sh\necho '{json.dumps(told)}'\n")
    program.chmod(0o700)
    (tmp_path / "config").write_text(
        f"[profile work]\nregion = ap-south-1\ncredential_process = {program}\n"
    )
    _, got = await received(env={"AWS_PROFILE": "work", "AWS_ACCESS_KEY_ID": "ignored"})
    assert "Credential=AKIDPROFILE/" in got.headers["authorization"]
    assert "/ap-south-1/bedrock/" in got.headers["authorization"]


async def test_missing_credentials_error_says_how_to_sign_in() -> None:
    error = await failed(env={})
    assert isinstance(error, AuthError)
    assert error.fix == SIGN_IN
    assert error.message.startswith("mock/us.anthropic")


async def test_missing_profile_is_named_in_error() -> None:
    error = await failed(env={"AWS_PROFILE": "nosuch"})
    assert isinstance(error, AuthError)
    assert "nosuch" in error.message


async def test_credential_process_failure_is_reported(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("[profile work]\ncredential_process = false\n")
    assert isinstance(await failed(env={"AWS_PROFILE": "work"}), AuthError)


async def test_role_that_cannot_be_assumed_raises_auth_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service that lends credentials refuses, in its own dialect."""
    told = b"<Error><Code>AccessDenied</Code><Message>not yours</Message></Error>"
    problem = b"<ErrorResponse>" + told + b"</ErrorResponse>"

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = b"HTTP/1.1 403 Forbidden\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
        writer.write(head % len(problem) + problem)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://127.0.0.1:{port}")
    (tmp_path / "config").write_text(
        "[profile base]\naws_access_key_id = a\naws_secret_access_key = b\n"
        "[profile work]\nrole_arn = arn:aws:iam::123456789012:role/r\nsource_profile = base\n"
        "region = us-east-1\n"
    )
    settings = bedrock.ProviderConnection("mock", "http://127.0.0.1:9")
    with pytest.raises(ProviderError) as caught:
        await last(bedrock.create(replace(settings, env={"AWS_PROFILE": "work"})))
    server.close()
    error = caught.value
    assert isinstance(error, AuthError)
    assert "not yours" in error.message


async def test_refused_account_and_refused_key_get_different_fix() -> None:
    assert (await failed(Fail(403))).fix == SIGN_IN
    assert "API key" in (await failed(Fail(403), key="ABSKexample")).fix


async def test_secrets_never_appear_in_errors() -> None:
    error = await failed(Fail(400, message="bad key ABSKexample123"), key="ABSKexample123")
    assert "ABSKexample123" not in str(error)
    settings = bedrock.ProviderConnection("mock", "http://h", "ABSKexample123")
    assert "ABSKexample123" not in repr(settings)


@pytest.mark.parametrize("address", ["nonsense", "http://", "http://127.0.0.1:1"])
async def test_closed_port_raises_unreachable(address: str) -> None:
    with pytest.raises(UnreachableError):
        await last(bedrock.create(bedrock.ProviderConnection("mock", address, env=KEYS)))


@pytest.mark.parametrize(
    "params",
    [{"temperature": "hot"}, {"guardrailConfig": 3}, {"requestMetadata": {"a": 1}}],
)
async def test_invalid_params_raise_before_anything_is_sent(params: Any) -> None:
    async with ModelServer() as server:
        provider = bedrock.create(bedrock.ProviderConnection("mock", server.url, env=KEYS))
        with pytest.raises(BadRequestError, match="not one that Bedrock takes"):
            await last(provider, ModelRequest("m", "", (user_message("hi"),), params=params))
        assert server.requests == []


async def test_tool_names_mapped_back_and_cost_counted() -> None:
    async with ModelServer() as server:
        server.script(
            [CallTools(ScriptedCall("files_read", {"p": 1})), ReportedUsage(1000, 100, 400)]
        )
        model = ModelInfo("mock", MODEL, price=Price(1, 5, 0.1, 1.25))
        settings = bedrock.ProviderConnection("mock", server.url)
        provider = bedrock.create(replace(settings, env=KEYS), models=[model])
        tools = (ToolSpec("files.read", "Read.", {}),)
        message = await last(provider, ModelRequest(MODEL, "", (user_message("hi"),), tools))
    [call] = message.calls
    assert isinstance(call, ToolCall)
    assert (call.name, dict(call.args)) == ("files.read", {"p": 1})
    assert message.origin is not None
    assert message.origin.usage.cost == pytest.approx((600 + 5 * 100 + 0.1 * 400) / 1e6)


def worker_threads() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each is not threading.main_thread()}


@pytest.mark.parametrize(
    "steps", [[HangUntilDisconnect()], [Say("I was"), HangUntilDisconnect()], [Delay(60)]]
)
async def test_cancel_disconnects_even_before_first_byte(steps: list[ScriptStep]) -> None:
    before = worker_threads()
    async with ModelServer() as server:
        provider = bedrock.create(bedrock.ProviderConnection("mock", server.url, env=KEYS))
        await last(provider)  # everything is loaded
        provider = bedrock.create(bedrock.ProviderConnection("mock", server.url, env=KEYS))
        server.script(steps)
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(last(provider))
            await server.arrived(2)
            start = time.monotonic()
            asking.cancel()
        spent_s = time.monotonic() - start
        if not isinstance(steps[0], Delay):  # whose server does not listen meanwhile
            await server.requests[1].ended.wait()
        outcome = server.requests[1].outcome
    assert spent_s < 1
    assert outcome in {"client left", "open"}
    for thread in worker_threads() - before:
        thread.join(5)
    assert worker_threads() <= before, "no thread is left behind"


async def test_concurrent_answers_use_no_thread_each() -> None:
    async with ModelServer() as server:
        for _ in range(60):
            server.script([Say("a"), HangUntilDisconnect()])
        provider = bedrock.create(bedrock.ProviderConnection("mock", server.url, env=KEYS))
        streams = [provider.stream(ASK) for _ in range(60)]

        async def begin(stream: Any) -> None:
            assert isinstance(await anext(stream), TextDelta)

        async with asyncio.TaskGroup() as group:
            for stream in streams:
                group.create_task(begin(stream))
        busy = len(worker_threads())
        for stream in streams:
            assert isinstance(stream, AsyncGenerator)
            await stream.aclose()
        await provider.close()
        result = busy
    assert result < 60


def test_event_processing_time_is_bounded() -> None:
    made = [
        event("contentBlockDelta", contentBlockIndex=0, delta={"text": f"word{n} "})
        for n in range(20_000)
    ]
    reader, reply = FrameReader(), ConverseStreamAssembler()
    start = time.process_time()
    for data in made:
        for frame in reader.feed(data):
            reply.add(*bedrock._event(frame, NOBODY))
    per_event_us = (time.process_time() - start) / len(made) * 1e6
    assert per_event_us < 25


def test_import_needs_no_aws_library() -> None:
    code = (
        "import sys; sys.modules['boto3'] = sys.modules['botocore'] = None\n"
        "sys.modules['google'] = None\n"
        "from homarus.providers import bedrock, vertex\n"
        "from homarus.core.errors import UserError\n"
        "from homarus.providers.endpoint import ProviderConnection as Connection\n"
        "for make in (lambda: bedrock.create(Connection('b', '')),\n"
        "             lambda: vertex.create(Connection('v', '', model_id='gemini-3'))):\n"
        "    try: make()\n"
        "    except UserError as exc: print(exc.fix)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    first, second = done.stdout.split("\n")[:2]
    assert first.endswith("pip install 'homarus[bedrock]'")
    assert second.endswith("pip install 'homarus[vertex]'")
    code = (
        "import sys\nfrom homarus.providers import bedrock, vertex\n"
        "bedrock.create(bedrock.ProviderConnection('b', ''))\n"
        "vertex.create(vertex.ProviderConnection('v', '', model_id='gemini-3'))\n"
        "print({'boto3', 'botocore', 'google.auth', 'requests', 'httpx2'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "set()"


def providers(**entries: object) -> Config:
    return Config.model_validate({"models": {"providers": entries}})


def opened(ref: str, config: Config, env: Mapping[str, str]) -> bedrock.BedrockProvider:
    provider, _ = first_of(ref, config, env)
    assert isinstance(provider, bedrock.BedrockProvider)
    return provider


def test_connect_selects_bedrock_by_name_or_api() -> None:
    named = opened("amazon-bedrock/m", Config(), {})
    assert (named.name, named.api, named._settings.base_url) == (
        "amazon-bedrock",
        "bedrock-converse-stream",
        "",
    )
    own = providers(work={"api": "bedrock-converse-stream", "models": [{"id": "m"}]})
    assert opened("work/m", own, {}).name == "work"
    address = providers(**{"amazon-bedrock": {"baseUrl": "https://vpce.example"}})
    assert opened("amazon-bedrock/m", address, {})._settings.base_url == "https://vpce.example"


def test_connect_key_used_unless_auth_is_aws_sdk() -> None:
    env = {"AWS_BEARER_TOKEN_BEDROCK": "ABSK"}
    assert opened("amazon-bedrock/m", Config(), env)._settings.api_key == "ABSK"
    aws = providers(**{"amazon-bedrock": {"auth": "aws-sdk"}})
    assert opened("amazon-bedrock/m", aws, env)._settings.api_key == ""


def test_connect_needs_account_and_no_key() -> None:
    assert not needs_key(Config(), "amazon-bedrock")
    assert lacks_account(Config(), {}, "amazon-bedrock")
    assert not lacks_account(Config(), KEYS, "amazon-bedrock")
    assert not lacks_account(providers(**{"amazon-bedrock": {}}), {}, "amazon-bedrock")
    assert not lacks_account(Config(), {}, "openai")
    assert VENDORS["amazon-bedrock"].api == bedrock.API


def test_regional_model_known_by_global_twin() -> None:
    everywhere = lookup_model(
        Config(), ModelRef("amazon-bedrock", "global.anthropic.claude-sonnet-4-6")
    )
    here = lookup_model(Config(), ModelRef("amazon-bedrock", "eu.anthropic.claude-sonnet-4-6"))
    assert here.known and here.reasoning and here.id == "eu.anthropic.claude-sonnet-4-6"
    assert here.price.input == pytest.approx(1.1 * everywhere.price.input)
    other = lookup_model(Config(), ModelRef("amazon-bedrock", "eu.amazon.nova-pro-v1:0"))
    assert not other.known
    assert "refresh" not in other.note, "nobody would answer that"


async def test_model_list_is_not_fetched() -> None:
    async def main() -> None:
        models = ModelRouter(Config(), KEYS, Paths.find({}, Path("/nowhere")), SystemClock())
        await models.refresh("amazon-bedrock")

    with pytest.raises(UserError, match="is not asked for its models"):
        await main()


async def test_run_uses_account_of_configured_environment() -> None:
    async with ModelServer() as server:
        config = providers(**{"amazon-bedrock": {"baseUrl": server.url}})
        env = {**KEYS, "AWS_REGION": "eu-west-1"}
        models = ModelRouter(config, env, Paths.find({}, Path("/nowhere")), SystemClock())
        provider, _ = await models.connect(ModelSelection("main", f"amazon-bedrock/{MODEL}"))
        pieces = [piece async for piece in provider.stream(ASK)]
        await models.close()
        assert isinstance(pieces[-1], Message)
        message, got = pieces[-1], server.requests[0]
    assert message.text
    assert "Credential=AKIDEXAMPLE" in got.headers["authorization"]
    assert "/eu-west-1/" in got.headers["authorization"]


def test_missing_library_reported_before_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(UserError) as caught:
        opened("amazon-bedrock/m", Config(), {})
    assert caught.value.fix.endswith("pip install 'homarus[bedrock]'")

    async def main() -> None:
        models = ModelRouter(Config(), {}, Paths.find({}, Path("/nowhere")), SystemClock())
        await models.connect(ModelSelection("main", "amazon-bedrock/m"))

    with pytest.raises(UserError, match="boto3"):
        asyncio.run(main())
