"""Vertex AI end to end: a Google account against a local token service, and the two wires."""

import asyncio
import base64
import json
import sys
from collections.abc import Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import anthropic as anthropic_sdk
import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from google import genai
from google.oauth2.credentials import Credentials

from homarus.config.schema import Config
from homarus.core.errors import AuthError, ProviderError, UnreachableError, UserError
from homarus.core.message import Message, Origin, Text, Thinking, user_message
from homarus.providers import vertex
from homarus.providers.base import ModelRequest, ToolSpec
from homarus.providers.catalog import VENDORS, ModelInfo
from homarus.providers.provider_errors import ErrorContext
from homarus.providers.resolution import needs_key
from homarus.testing.model_server import Fail, ModelServer, ReceivedRequest, Say, ScriptStep, Think
from tests.unit.providers.builders import first_of

GEMINI = "gemini-3-flash-preview"
CLAUDE = "claude-haiku-4-5@20251001"
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
PEM = KEY.private_bytes(
    serialization.Encoding.PEM,
    serialization.PrivateFormat.PKCS8,
    serialization.NoEncryption(),
).decode()
SUBJECT = ErrorContext("v", "m", "somewhere")


@dataclass
class Tokens:
    """A token service that checks what Google's checks: the grant, and who signed it."""

    port: int = 0
    lasts_s: int = 3600
    refuse: bytes = b""
    claims: list[dict[str, Any]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/token"

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = next(
            int(line.split(b":")[1])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length")
        )
        form = parse_qs((await reader.readexactly(size)).decode())
        assert form["grant_type"] == ["urn:ietf:params:oauth:grant-type:jwt-bearer"]
        self.claims.append(verified(form["assertion"][0]))
        token = {"access_token": f"ya29.token-{len(self.claims)}", "token_type": "Bearer"}
        body = self.refuse or json.dumps({**token, "expires_in": self.lasts_s}).encode()
        status = b"400 Bad Request" if self.refuse else b"200 OK"
        writer.write(
            b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
            b"Connection: close\r\n\r\n%b" % (status, len(body), body)
        )
        await writer.drain()
        writer.close()


def verified(assertion: str) -> dict[str, Any]:
    head, claims, signature = assertion.split(".")
    padded = [base64.urlsafe_b64decode(part + "==") for part in (claims, signature)]
    KEY.public_key().verify(
        padded[1], f"{head}.{claims}".encode(), padding.PKCS1v15(), hashes.SHA256()
    )
    told: dict[str, Any] = json.loads(padded[0])
    return told


@asynccontextmanager
async def token_service() -> Any:
    tokens = Tokens()
    server = await asyncio.start_server(tokens.connected, "127.0.0.1", 0)
    tokens.port = server.sockets[0].getsockname()[1]
    try:
        yield tokens
    finally:
        server.close()


def account_file(folder: Path, token_url: str, **changes: Any) -> dict[str, str]:
    """A service account's file, and the environment that names it."""
    told = {
        "type": "service_account",
        "project_id": "filed-project",
        "private_key_id": "k1",
        "private_key": PEM,
        "client_email": "robot@filed-project.iam.gserviceaccount.com",
        "client_id": "1",
        "token_uri": token_url,
        "universe_domain": "googleapis.com",
        **changes,
    }
    file = folder / "account.json"
    file.write_text(json.dumps({k: v for k, v in told.items() if v is not None}))
    return {"GOOGLE_APPLICATION_CREDENTIALS": str(file)}


@pytest.fixture(autouse=True)
def no_account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever account this machine has is not to be found."""
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "nowhere"))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    for name in ("CREDENTIALS", "PROJECT", "LOCATION"):
        monkeypatch.delenv(f"GOOGLE_CLOUD_{name}", raising=False)
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)


@dataclass
class Scene:
    message: Message
    requests: list[ReceivedRequest]
    claims: list[dict[str, Any]]


def ask(model: str = GEMINI) -> ModelRequest:
    return ModelRequest(model, "Be brief.", (user_message("hé"),), (ToolSpec("read", "Read.", {}),))


async def played(
    folder: Path,
    *steps: ScriptStep,
    request: ModelRequest | None = None,
    env: Mapping[str, str] | None = None,
    key: str = "",
    times: int = 1,
    path: str = "",
    lasts_s: int = 3600,
    refuse: bytes = b"",
    **file: Any,
) -> Scene:
    async with asyncio.timeout(30), token_service() as tokens, ModelServer() as server:
        tokens.lasts_s, tokens.refuse = lasts_s, refuse
        account = account_file(folder, tokens.url, **file)
        settings = vertex.ProviderConnection("v", server.url + path, key)
        request_ = request or ask()
        provider = vertex.create(
            replace(settings, model_id=request_.model, env={**account, **(env or {})})
        )
        try:
            for _ in range(times):
                server.script(list(steps) or [Say("ok")])
                pieces = [piece async for piece in provider.stream(request_)]
        finally:
            await provider.close()
        assert isinstance(pieces[-1], Message)
        return Scene(pieces[-1], server.requests, tokens.claims)


async def failed(folder: Path, *steps: ScriptStep, **told: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await played(folder, *steps, **told)
    return caught.value


async def test_gemini_request_has_token_of_account(tmp_path: Path) -> None:
    scene = await played(tmp_path, Think("hm"), Say("Fine."))
    [got], [claims] = scene.requests, scene.claims
    place = "/v1/projects/filed-project/locations/global/publishers/google/models"
    assert got.path == f"{place}/{GEMINI}:streamGenerateContent?alt=sse"
    assert got.headers["authorization"] == "Bearer ya29.token-1"
    assert "x-goog-api-key" not in got.headers
    assert claims["iss"] == "robot@filed-project.iam.gserviceaccount.com"
    assert claims["scope"] == "https://www.googleapis.com/auth/cloud-platform"
    assert (scene.message.text, scene.message.thinking) == ("Fine.", "hm")
    assert scene.message.origin is not None
    assert (scene.message.origin.api, scene.message.origin.provider) == ("google-vertex", "v")


async def test_token_is_reused_until_expiry(tmp_path: Path) -> None:
    assert len((await played(tmp_path, times=3)).claims) == 1
    scene = await played(tmp_path, times=3, lasts_s=1)
    assert len(scene.claims) == 3
    assert scene.requests[2].headers["authorization"] == "Bearer ya29.token-3"


async def test_project_and_location_from_environment_before_file(tmp_path: Path) -> None:
    env = {"GOOGLE_CLOUD_PROJECT": "mine", "GOOGLE_CLOUD_LOCATION": "europe-west4"}
    path = (await played(tmp_path, env=env)).requests[0].path
    assert path.startswith("/v1/projects/mine/locations/europe-west4/publishers/google/")


async def test_base_url_may_name_project(tmp_path: Path) -> None:
    place = "/projects/p/locations/l"
    for ending in ("", "/", "/publishers/google"):
        scene = await played(tmp_path, path=place + ending, env={"GOOGLE_CLOUD_PROJECT": "other"})
        assert scene.requests[0].path.startswith(f"/v1{place}/publishers/google/models/")


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("", "https://aiplatform.googleapis.com/v1"),
        ("global", "https://aiplatform.googleapis.com/v1"),
        ("us", "https://aiplatform.us.rep.googleapis.com/v1"),
        ("us-central1", "https://us-central1-aiplatform.googleapis.com/v1"),
    ],
)
def test_location_decides_host(location: str, url: str) -> None:
    assert vertex.GoogleCloudAccount("", {"GOOGLE_CLOUD_LOCATION": location}).base_url == url


async def test_quota_project_header_is_sent(tmp_path: Path) -> None:
    got = (await played(tmp_path, env={"GOOGLE_CLOUD_QUOTA_PROJECT": "payer"})).requests[0]
    assert got.headers["x-goog-user-project"] == "payer"


async def test_api_key_needs_no_sign_in(tmp_path: Path) -> None:
    scene = await played(tmp_path, key="AQ.express")
    [got] = scene.requests
    assert scene.claims == []
    assert got.headers["x-goog-api-key"] == "AQ.express"
    assert "authorization" not in got.headers
    assert got.path.startswith(f"/v1/publishers/google/models/{GEMINI}")


async def test_claude_request_uses_messages_api(tmp_path: Path) -> None:
    request = ask(CLAUDE)
    scene = await played(tmp_path, Think("hm"), Say("Fine."), request=request, key="AQ.express")
    [got] = scene.requests
    place = "/v1/projects/filed-project/locations/global/publishers/anthropic/models"
    assert got.path == f"{place}/{CLAUDE}:streamRawPredict"
    assert got.headers["authorization"] == "Bearer ya29.token-1"
    assert "x-api-key" not in got.headers and "x-goog-api-key" not in got.headers
    assert got.body["anthropic_version"] == "vertex-2023-10-16"
    assert "model" not in got.body
    assert got.body["stream"] is True
    assert scene.message.text == "Fine."
    assert scene.message.origin is not None
    assert scene.message.origin.model == CLAUDE


async def test_claude_reasoning_is_replayed(tmp_path: Path) -> None:
    thought = (Thinking("hm", "c2ln"), Text("x"))
    origin = Origin("anthropic-messages", "v", CLAUDE)
    history = (user_message("a"), Message("assistant", thought, origin=origin), user_message("b"))
    got = (await played(tmp_path, request=ModelRequest(CLAUDE, "", history))).requests[0]
    assert got.body["messages"][1]["content"][0]["type"] == "thinking"


async def test_google_client_calls_same_address(tmp_path: Path) -> None:
    ours = (await played(tmp_path, env={"GOOGLE_CLOUD_LOCATION": "europe-west4"})).requests[0]

    token: Any = Credentials
    async with ModelServer() as server:
        base = server.url.removesuffix("/v1")
        client = genai.Client(
            vertexai=True,
            project="filed-project",
            location="europe-west4",
            credentials=token("t"),
            http_options={"base_url": base, "api_version": "v1"},
        )
        stream = await client.aio.models.generate_content_stream(model=GEMINI, contents="hi")
        assert "".join([chunk.text or "" async for chunk in stream])
        await client.aio.aclose()
        result = server.requests[0]
    assert result.path == ours.path


async def test_anthropic_client_calls_same_address(tmp_path: Path) -> None:
    ours = (await played(tmp_path, request=ask(CLAUDE))).requests[0]
    async with ModelServer() as server:
        client = anthropic_sdk.AsyncAnthropicVertex(
            region="global",
            project_id="filed-project",
            access_token="t",
            base_url=server.url,
            max_retries=0,
        )
        async with (
            client,
            client.messages.stream(
                model=CLAUDE, max_tokens=9, messages=[{"role": "user", "content": "hi"}]
            ) as stream,
        ):
            assert await stream.get_final_text()
        theirs = server.requests[0]
    assert theirs.path == ours.path
    # Theirs is the newest version, ours the one whose answers we read; both stand in the body.
    assert {"anthropic_version", "stream"} <= set(theirs.body) & set(ours.body)
    assert "model" not in {*theirs.body, *ours.body}


async def test_refused_account_error_says_how_to_sign_in(tmp_path: Path) -> None:
    refusal = b'{"error":"invalid_grant","error_description":"Invalid JWT Signature."}'
    error = await failed(tmp_path, refuse=refusal)
    assert isinstance(error, AuthError)
    assert "Invalid JWT Signature" in error.message
    assert "gcloud auth application-default login" in error.fix


async def test_missing_account_error_says_how_to_get_one() -> None:
    async def main() -> None:
        provider = vertex.create(vertex.ProviderConnection("v", "", model_id=GEMINI, env={}))
        try:
            async for _ in provider.stream(ask()):
                pass
        finally:
            await provider.close()

    with pytest.raises(AuthError) as caught:
        await main()
    assert "GOOGLE_APPLICATION_CREDENTIALS" in caught.value.fix


@pytest.mark.parametrize(
    "changes",
    [{"private_key": "not a key"}, {"client_email": None}, {"type": "nonsense"}],
)
async def test_spoiled_credentials_file_raises_auth_error(tmp_path: Path, changes: Any) -> None:
    error = await failed(tmp_path, **changes)
    assert isinstance(error, AuthError)
    assert PEM[30:60] not in error.message


async def test_missing_or_invalid_credentials_file_is_named(tmp_path: Path) -> None:
    for content in (None, "{"):
        file = tmp_path / "other.json"
        if content:
            file.write_text(content)
        error = await failed(tmp_path, env={"GOOGLE_APPLICATION_CREDENTIALS": str(file)})
        assert isinstance(error, AuthError)
        assert "other.json" in error.message


async def test_unavailable_token_service_raises_unreachable(tmp_path: Path) -> None:
    error = await failed(tmp_path, token_uri="http://127.0.0.1:1/token")
    assert isinstance(error, UnreachableError)


async def test_account_without_project_error_asks_for_one(tmp_path: Path) -> None:
    error = await failed(tmp_path, project_id=None)
    assert isinstance(error, AuthError)
    assert error.fix == "set GOOGLE_CLOUD_PROJECT"


async def test_service_refusal_raises_its_class(tmp_path: Path) -> None:
    assert type(await failed(tmp_path, Fail(401))) is AuthError
    assert type(await failed(tmp_path, Fail(401), request=ask(CLAUDE))) is AuthError


async def test_silent_token_service_times_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vertex, "TOKEN_S", 0.2)

    async def main() -> None:
        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        service = await asyncio.start_server(silent, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{service.sockets[0].getsockname()[1]}/token"
        account = account_file(tmp_path, url)
        provider = vertex.create(vertex.ProviderConnection("v", "", model_id=GEMINI, env=account))
        try:
            async for _ in provider.stream(ask()):
                pass
        finally:
            service.close()
            await provider.close()

    with pytest.raises(UnreachableError):
        await main()


async def test_concurrent_requests_sign_in_once(tmp_path: Path) -> None:
    async with token_service() as tokens:
        account = vertex.GoogleCloudAccount("", account_file(tmp_path, tokens.url))
        async with asyncio.TaskGroup() as group:
            for _ in range(20):
                group.create_task(account.signed_in(SUBJECT))
        result = len(tokens.claims)
    assert result == 1


def test_connect_selects_vertex_by_name() -> None:
    provider, model = first_of("google-vertex/gemini-3-flash-preview")
    assert isinstance(provider, vertex.VertexGeminiProvider)
    assert model.known
    provider, _ = first_of("google-vertex/claude-sonnet-4-6")
    assert isinstance(provider, vertex.VertexClaudeProvider)
    assert VENDORS["google-vertex"].api == vertex.API
    assert not needs_key(Config(), "google-vertex")
    env = {"GOOGLE_CLOUD_API_KEY": "AQ.express"}
    provider, _ = first_of("google-vertex/gemini-3-flash-preview", env=env)
    assert isinstance(provider, vertex.VertexGeminiProvider)
    assert provider._settings.api_key


def test_missing_library_error_names_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.auth", None)
    with pytest.raises(UserError) as caught:
        vertex.create(vertex.ProviderConnection("v", "", model_id=GEMINI))
    assert caught.value.fix.endswith("pip install 'homarus[vertex]'")
    keyed = vertex.ProviderConnection("v", "", "AQ.express")
    assert (
        vertex.create(replace(keyed, model_id=GEMINI), models=[ModelInfo("v", GEMINI)]).name == "v"
    )
