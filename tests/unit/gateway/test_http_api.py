"""The base of the HTTP API: routes, authentication, bodies, errors."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from homarus.core.message import Json
from homarus.gateway.http_api import api_routes
from homarus.gateway.http_api.api_error import ApiError
from homarus.gateway.http_api.api_routes import ROUTES, ApiRoute, find_api_route
from homarus.gateway.http_api.application import find_endpoints
from homarus.gateway.http_api.endpoint import (
    KEY_HEADER,
    ApiCall,
    ApiHeader,
    ApiRequest,
    EndpointLimits,
    api_endpoint,
)
from homarus.gateway.http_api.json_body import MAX_DEPTH, MAX_VALUES, decode_json
from homarus.gateway.http_api.request_key import make_request_key
from tests.unit.gateway.api_harness import ALL_ENDPOINTS, api, pair_device

PATH = "/v1/test"
LIMIT = 1000


class EchoRequest(ApiRequest):
    """What the endpoint of these tests takes."""

    text: str = ""
    fails: str = ""


@api_endpoint(
    "POST",
    PATH,
    scope="write",
    request=EchoRequest,
    limits=EndpointLimits(lambda _endpoints: LIMIT, 0.2),
    headers=(KEY_HEADER, ApiHeader("x-openclaw-agent-id", "The agent")),
)
async def echo(call: ApiCall, body: EchoRequest) -> dict[str, Json]:
    """Return what came."""
    if body.fails == "error":
        raise ApiError(418, "no tea", reason="teapot", param="text")
    if body.fails == "bug":
        raise ZeroDivisionError("secret-in-a-bug")
    key = call.request_key
    return {
        "text": body.text,
        "agent": call.header("x-openclaw-agent-id"),
        "key": [key.id, key.digest] if key else [],
        "who": call.caller_id,
    }


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Serve `PATH` as an endpoint that `embeddings` turns on."""
    route = ApiRoute(PATH, "test", ("embeddings",))
    monkeypatch.setattr(api_routes, "ROUTES", (*ROUTES, route))
    module: Any = SimpleNamespace(echo=echo)
    monkeypatch.setitem(sys.modules, "homarus.gateway.http_api.test", module)


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/v1/things/a", {"id": "a"}),
        ("/v1/things/a/b", {"id": "a/b"}),
        ("/v1/things/", None),
        ("/v1/things", None),
        ("/v1/thingsa", None),
    ],
)
def test_api_route_matches_the_rest_of_a_path(path: str, found: Any) -> None:
    assert ApiRoute("/v1/things/{id}", "", ()).match(path) == found


def test_api_routes_name_modules_that_serve_them() -> None:
    for route in ROUTES:
        assert find_endpoints(route), route.path
        assert route.settings and set(route.settings) <= set(api_routes.SETTINGS)


@pytest.mark.parametrize("path", ["/openapi.json", "/v1/unknown", "/v1//openapi.json"])
async def test_api_path_that_is_off_is_protected_and_absent(path: str, tmp_path: Path) -> None:
    async with api(tmp_path) as (client, _stage):
        assert (await client.with_token("").get(path)).status == 401
        assert (await client.with_token("wrong").get(path)).status == 401
        assert (await client.get(path)).status == 404


async def test_api_path_that_is_off_names_its_setting(tmp_path: Path) -> None:
    async with api(tmp_path) as (client, _stage):
        error = (await client.get("/openapi.json")).error
    assert error["code"] == "endpoint_disabled" and error["type"] == "not_found"
    assert "gateway.http.endpoints.embeddings.enabled" in error["message"]


@pytest.mark.usefixtures("endpoint")
async def test_api_endpoint_follows_the_config_without_restart(tmp_path: Path) -> None:
    async with api(tmp_path) as (client, stage):
        assert (await client.post(PATH, {})).status == 404
        loaded = stage.program.loaded
        raw = {"gateway": {"http": {"endpoints": {"embeddings": {"enabled": True}}}}}
        stage.program.loaded = replace(loaded, config=type(loaded.config).model_validate(raw))
        assert (await client.post(PATH, {})).status == 200
        stage.program.loaded = loaded
        assert (await client.post(PATH, {})).status == 404


@pytest.mark.usefixtures("endpoint")
async def test_api_endpoint_answers_the_owner(tmp_path: Path) -> None:
    async with api(tmp_path, "embeddings") as (client, _stage):
        got = await client.post(PATH, {"text": "hi", "unknown": 1})
    assert (got.status, got.json["text"], got.json["who"]) == (200, "hi", "owner")
    assert got.headers["content-type"] == "application/json"
    assert got.headers["x-content-type-options"] == "nosniff"
    assert got.headers["cache-control"] == "no-store"


@pytest.mark.usefixtures("endpoint")
async def test_api_endpoint_needs_the_scope(tmp_path: Path) -> None:
    async with api(tmp_path, "embeddings") as (client, stage):
        reader = client.with_token(pair_device(stage, "read", name="reader"))
        writer = client.with_token(pair_device(stage, "write", name="writer"))
        refused = await reader.post(PATH, {})
        assert (refused.status, refused.error["code"]) == (403, "missing_scope")
        assert (await writer.post(PATH, {})).json["who"] == "writer"
        assert (await reader.get("/openapi.json")).status == 200


@pytest.mark.usefixtures("endpoint")
@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "post"])
async def test_api_endpoint_refuses_another_method(method: str, tmp_path: Path) -> None:
    async with api(tmp_path, "embeddings") as (client, _stage):
        got = await client.send(method, PATH, b"{}")
    assert (got.status, got.headers["allow"]) == (405, "POST")


@pytest.mark.usefixtures("endpoint")
@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"{}", "", 415),
        (b"{}", "text/plain", 415),
        (b"{}", "application/x-www-form-urlencoded", 415),
        (b"{}", "application/json; charset=utf-8", 200),
        (b"", "application/json", 400),
        (b"[]", "application/json", 400),
        (b"null", "application/json", 400),
        (b'{"text": 1}', "application/json", 400),
        (b'{"text": NaN}', "application/json", 400),
        (b'{"a": 1e999}', "application/json", 400),
        (b'{"text": "a", "text": "b"}', "application/json", 400),
        (b'{"a": [{"b": 1, "b": 2}]}', "application/json", 400),
        (b'{"text": "\xff"}', "application/json", 400),
        (b"[" * 100_000, "application/json", 413),
        (b'{"a":' + b"[" * 400 + b"]" * 400 + b"}", "application/json", 400),
        (b'{"text": "' + b"x" * LIMIT + b'"}', "application/json", 413),
    ],
)
async def test_api_body_that_is_invalid_is_refused(
    body: bytes, kind: str, status: int, tmp_path: Path
) -> None:
    async with api(tmp_path, "embeddings") as (client, _stage):
        got = await client.send("POST", PATH, body, kind=kind)
    assert got.status == status
    if status != 200:
        assert got.error["message"] and got.error["type"] == "invalid_request_error"


@pytest.mark.usefixtures("endpoint")
async def test_api_body_without_length_is_limited_too(tmp_path: Path) -> None:
    async with api(tmp_path, "embeddings") as (client, _stage):
        small = await client.send("POST", PATH, pieces=[b'{"text":', b'"a"}'])
        large = await client.send("POST", PATH, pieces=[b'{"text":"', *[b"x" * 100] * 20, b'"}'])
    assert small.json["text"] == "a"
    assert (large.status, large.headers["connection"]) == (413, "close")


@pytest.mark.usefixtures("endpoint")
@pytest.mark.parametrize("length", ["-1", "1_0", "abc", "9" * 5000, "٣"])
async def test_api_body_with_invalid_length_is_refused(length: str, tmp_path: Path) -> None:
    async with api(tmp_path, "embeddings") as (client, _stage):
        got = await client.send(
            "POST",
            PATH,
            pieces=[b"{}"],
            headers=[("content-length", length.encode().decode("latin-1"))],
        )
    assert got.status in {400, 413}


@pytest.mark.usefixtures("endpoint")
async def test_api_error_has_the_shape_of_openai(tmp_path: Path) -> None:
    async with api(tmp_path, "embeddings") as (client, _stage):
        got = await client.post(PATH, {"fails": "error"})
        invalid = await client.post(PATH, {"text": {"a": 1}})
    assert got.status == 418
    assert got.error == {
        "message": "no tea", "type": "invalid_request_error", "param": "text", "code": "teapot",
    }  # fmt: skip
    assert invalid.error["param"] == "text"


@pytest.mark.usefixtures("endpoint")
async def test_api_bug_is_answered_without_its_text(tmp_path: Path) -> None:
    async with api(tmp_path, "embeddings") as (client, _stage):
        got = await client.post(PATH, {"fails": "bug"})
    assert got.status == 500 and b"secret" not in got.body


@pytest.mark.usefixtures("endpoint")
async def test_api_repeated_header_is_refused(tmp_path: Path) -> None:
    agent = "x-openclaw-agent-id"
    async with api(tmp_path, "embeddings") as (client, _stage):
        twice = await client.post(PATH, {}, headers=[(agent, "a"), (agent, "b")])
        same = await client.post(PATH, {}, headers=[(agent, "a"), (agent, "a")])
        long = await client.post(PATH, {}, headers=[(agent, "a" * 600)])
        control = await client.post(PATH, {}, headers=[(agent, "a\x01b")])
    assert (twice.status, twice.error["param"]) == (400, agent)
    assert same.json["agent"] == "a"
    assert (long.status, control.status) == (400, 400)


@pytest.mark.usefixtures("endpoint")
async def test_api_is_unavailable_until_the_gateway_is_ready(tmp_path: Path) -> None:
    async with api(tmp_path, "embeddings", ready=False) as (client, stage):
        starting = await client.post(PATH, {})
        assert (await client.with_token("no").get(PATH)).status == 401
    assert starting.status == 503 and starting.headers["retry-after"]
    async with api(tmp_path, "embeddings") as (client, stage):
        stage.gateway.stopping = True
        assert (await client.post(PATH, {})).status == 503


@pytest.mark.usefixtures("endpoint")
async def test_api_request_of_a_foreign_page_is_refused(tmp_path: Path) -> None:
    async with api(tmp_path, "embeddings") as (client, stage):
        foreign = await client.post(PATH, {}, headers=[("origin", "https://evil.example")])
        own = await client.post(PATH, {}, headers=[("origin", "http://127.0.0.1:18789")])
        device = client.with_token(pair_device(stage, "write"))
        paired = await device.post(PATH, {}, headers=[("origin", "http://127.0.0.1:18789")])
    assert (foreign.status, own.status, paired.status) == (403, 403, 200)
    assert "access-control-allow-origin" not in paired.headers


@pytest.mark.usefixtures("endpoint")
async def test_api_secret_from_another_machine_gives_no_scopes(tmp_path: Path) -> None:
    async with api(tmp_path, "embeddings") as (client, stage):
        remote = await client.post(PATH, {}, peer="10.0.0.9")
        device = client.with_token(pair_device(stage, "write"))
        assert (await device.post(PATH, {}, peer="10.0.0.9")).status == 200
        for _ in range(10):
            await client.with_token("guess").post(PATH, {}, peer="10.0.0.9")
        locked = await device.post(PATH, {}, peer="10.0.0.9")
    assert remote.status == 403
    assert locked.status == 429 and int(locked.headers["retry-after"]) > 0


@pytest.mark.usefixtures("endpoint")
async def test_api_request_key_is_of_one_caller_and_request(tmp_path: Path) -> None:
    key = [("idempotency-key", "k1")]
    async with api(tmp_path, "embeddings") as (client, stage):
        device = client.with_token(pair_device(stage, "write"))
        first = (await client.post(PATH, {"text": "a"}, headers=key)).json["key"]
        same = (await client.post(PATH, {"text": "a"}, headers=key)).json["key"]
        body = (await client.post(PATH, {"text": "b"}, headers=key)).json["key"]
        agent = [*key, ("x-openclaw-agent-id", "b")]
        header = (await client.post(PATH, {"text": "a"}, headers=agent)).json["key"]
        other = (await device.post(PATH, {"text": "a"}, headers=key)).json["key"]
        invalid = await client.post(PATH, {}, headers=[("idempotency-key", "k" * 256)])
        without = (await client.post(PATH, {})).json["key"]
    assert first == same and without == []
    assert body[0] == header[0] == first[0] and len({first[1], body[1], header[1]}) == 3
    assert other[0] != first[0] and invalid.status == 400


def test_request_key_of_another_request_is_a_conflict() -> None:
    key = make_request_key("k", caller="a", endpoint="/x", parts=[b"1"])
    assert key is not None
    key.check_same(key.digest)
    with pytest.raises(ApiError) as caught:
        key.check_same("other")
    assert caught.value.status == 409


def test_json_body_with_many_names_and_a_repeated_one_is_refused() -> None:
    names = [f'"n{number}":1' for number in range(MAX_VALUES - 10)]
    with pytest.raises(ApiError, match="a name occurs twice"):
        decode_json(f'{{{",".join(names)},"n199000":2}}'.encode())


def test_json_body_depth_and_size_are_limited() -> None:
    assert decode_json(b"[" * (MAX_DEPTH - 1) + b"1" + b"]" * (MAX_DEPTH - 1))
    for body in (
        b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1),
        b"[" + b"1," * MAX_VALUES + b"1]",
    ):
        with pytest.raises(ApiError):
            decode_json(body)
    assert decode_json(b'"\\ud800"') == "\ufffd"


def test_find_api_route_ignores_other_spellings() -> None:
    assert find_api_route("/openapi.json")
    for path in ("/openapi.json/", "//openapi.json", "/OPENAPI.json", "/openapi.json\x00", ""):
        assert find_api_route(path) is None


async def test_openapi_document_describes_what_is_on(tmp_path: Path) -> None:
    async with api(tmp_path, *ALL_ENDPOINTS) as (client, _stage):
        got = await client.get("/openapi.json")
    document = got.json
    assert document["openapi"].startswith("3.1.") and "/openapi.json" in document["paths"]
    text = json.dumps(document)
    schemas = document["components"]["schemas"]
    refs = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert refs <= schemas.keys() and "bearer" in document["components"]["securitySchemes"]
