"""`/openapi.json`: what the enabled endpoints take and return, made from their models."""

from collections.abc import Iterator
from typing import Any, Final

from pydantic.json_schema import models_json_schema

from homarus import __version__
from homarus.core.message import Json
from homarus.gateway.http_api.api_routes import ROUTES, enabled_settings
from homarus.gateway.http_api.application import find_endpoints
from homarus.gateway.http_api.endpoint import ApiCall, ApiEndpoint, ApiResponse, api_endpoint

_REF: Final = "#/components/schemas/{model}"
_TEXTS: Final = {
    400: "The request is invalid",
    401: "The token is missing or wrong",
    403: "The token has not the scope for this",
    404: "There is no such thing, or the endpoint is turned off",
    405: "The path is not called with this method",
    408: "The body did not come in time",
    409: "The Idempotency-Key was used with another request",
    413: "The body is too large",
    415: "The body is not JSON",
    422: "The run was stopped, or has not made the call that was demanded",
    429: "Too many failed attempts to authenticate, or the model service's limit",
    500: "A bug, written to the log of the gateway",
    502: "The model service failed",
    503: "The gateway cannot answer now",
    504: "The answer took too long",
}


class ApiErrorDetail(ApiResponse):
    """What is wrong with a request."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ApiErrorBody(ApiResponse):
    """The body of every error."""

    error: ApiErrorDetail


@api_endpoint("GET", "/openapi.json", scope="read")
async def describe_api(call: ApiCall, _body: None) -> dict[str, Json]:
    """Describe the endpoints that are turned on, as OpenAPI 3.1."""
    settings = call.services.loaded.config.gateway.http.endpoints
    return make_document(enabled_settings(settings))


def make_document(settings: tuple[str, ...]) -> dict[str, Json]:
    """Return the OpenAPI document of the endpoints that these settings turn on."""
    endpoints = list(_endpoints(settings))
    refs, definitions = models_json_schema(
        [(model, mode) for each in endpoints for model, mode in _models(each)]
        + [(ApiErrorBody, "serialization")],
        by_alias=True,
        ref_template=_REF,
    )
    paths: dict[str, dict[str, Json]] = {}
    for each in endpoints:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each, refs)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Homarus",
            "version": __version__,
            "description": "The HTTP API of a Homarus gateway, compatible with OpenAI's.",
        },
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": definitions.get("$defs", {}),
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _endpoints(settings: tuple[str, ...]) -> Iterator[ApiEndpoint]:
    for route in ROUTES:
        if set(route.settings) & set(settings):
            yield from find_endpoints(route).values()


def _models(endpoint: ApiEndpoint) -> Iterator[tuple[Any, Any]]:
    if endpoint.request is not None:
        yield endpoint.request, "validation"
    if endpoint.response is not None:
        yield endpoint.response, "serialization"


def _operation(endpoint: ApiEndpoint, refs: dict[Any, dict[str, Any]]) -> dict[str, Json]:
    statuses = {401, 403, 429, 503, *endpoint.errors}
    parameters = [_path_parameter(endpoint.path)] if "{" in endpoint.path else []
    for header in endpoint.headers:
        schema: dict[str, Json] = {"type": "string", "maxLength": 255}
        described = {"name": header.name, "in": "header", "description": header.text}
        parameters.append({**described, "schema": schema})
    found: dict[str, Json] = {
        "operationId": getattr(endpoint.run, "__name__", endpoint.path),
        "description": endpoint.description,
        "parameters": parameters,
        "x-required-scope": f"operator.{endpoint.scope}",
    }
    if endpoint.request is not None:
        statuses |= {400, 408, 413, 415}
        schema = refs[endpoint.request, "validation"]
        found["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schema}},
        }
    if parameters:
        statuses |= {400}
    error = _content(refs[ApiErrorBody, "serialization"])
    responses: dict[str, Json] = {"200": _success(endpoint, refs)}
    for status in sorted(statuses):
        shown = error if endpoint.shape_error is None else {}
        responses[str(status)] = {"description": _TEXTS[status], **shown}
    return {**found, "responses": responses}


def _success(endpoint: ApiEndpoint, refs: dict[Any, dict[str, Any]]) -> dict[str, Json]:
    schema: dict[str, Json] = {"type": "object"}
    if endpoint.response is not None:
        schema = refs[endpoint.response, "serialization"]
    found = _content(schema)
    if endpoint.streams:
        found["content"]["text/event-stream"] = {"schema": {"type": "string"}}
    return {"description": "The answer", **found}


def _content(schema: dict[str, Json]) -> dict[str, Json]:
    return {"content": {"application/json": {"schema": schema}}}


def _path_parameter(path: str) -> dict[str, Json]:
    name = path.partition("{")[2].removesuffix("}")
    schema = {"type": "string", "minLength": 1, "maxLength": 200}
    return {"name": name, "in": "path", "required": True, "schema": schema}
