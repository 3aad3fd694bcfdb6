"""Make the request of an action from its arguments, send it, and format the response.

The host and the scheme are the skill's. An argument can change segments of the path, values of the
query and the body; each is encoded, so that none of them becomes more than one. Redirects stay on
the host. Every address is checked by the network guard.
"""

import json
import unicodedata
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from homarus.core.errors import BlockedUrlError, ToolError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json, Text
from homarus.core.text import one_line
from homarus.net.guard import MAX_URL_CHARS, CheckedTarget, NetworkPolicy, parse_url
from homarus.net.guarded_fetch import (
    FetchClient,
    FetchedResponse,
    FetchLimits,
    guarded_fetch,
    make_client,
)
from homarus.skills.actions.definition import BodyTemplate, HttpAction
from homarus.skills.actions.json_select import select_part
from homarus.skills.actions.template import ArgumentPlace, TextTemplate, format_scalar
from homarus.tools.exec.approval import escape_deceptive_chars, escape_line
from homarus.tools.tool import ToolOutput

MAX_BODY_BYTES: Final = 1_000_000
_CONTENT_TYPES: Final = {
    "json": "application/json",
    "form": "application/x-www-form-urlencoded",
    "text": "text/plain; charset=utf-8",
}
_ABSENT: Final = object()


@dataclass(frozen=True, slots=True)
class HttpCall:
    """A request, ready to be sent."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes = b""


def make_http_call(
    action: HttpAction, args: Mapping[str, Json], keys: Mapping[str, str]
) -> HttpCall:
    """Return the request. Raises ToolError for arguments that it cannot carry."""
    path = "/".join(_fill_segment(each, args) for each in action.path)
    query = urlencode(_fill_pairs(action.query, args, keys), quote_via=quote, safe="")
    url = f"{action.origin}/{path}" + (f"?{query}" if query else "")
    if len(url) > MAX_URL_CHARS:
        raise ToolError(f"the URL would be longer than {MAX_URL_CHARS} characters")
    _check_origin(action.origin, url)
    headers = {name: _fill_header(name, each, keys) for name, each in action.headers}
    body = _make_body(action, args)
    if body and not any(name.lower() == "content-type" for name in headers):
        headers["Content-Type"] = _CONTENT_TYPES[action.body_kind]
    return HttpCall(action.method, url, headers, body)


def _check_origin(origin: str, url: str) -> None:
    """Raise ToolError unless the URL leads where the skill says, by the guard's own reading."""
    fixed, host, port = parse_url(origin)
    found, other_host, other_port = parse_url(url)
    if (fixed.scheme, host, port) != (found.scheme, other_host, other_port):
        raise ToolError("an argument would change the host of the request")


def _fill_segment(template: TextTemplate, args: Mapping[str, Json]) -> str:
    """Return a segment of the path, or several for `{+path}`; none of them is `.` or `..`."""
    if not template.argument_names:
        return "".join(quote(str(each), safe="%:@!$&'()*+,;=~") for each in template.pieces)
    filled = template.fill(args, {}, _encode_segment) or ""
    for part in filled.split("/"):
        if part in {"", ".", ".."}:
            names = ", ".join(sorted(template.argument_names))
            raise ToolError(f"{names}: a part of a path may not be empty, . or ..")
    return filled


def _encode_segment(place: ArgumentPlace, text: str) -> str:
    if any(unicodedata.category(ch) in {"Cc", "Cf", "Cs"} for ch in text):
        raise ToolError(f"{place.name}: a character that is not shown cannot be a part of a path")
    refused = "\\" if place.is_path else "/\\"
    if any(ch in text for ch in refused):
        raise ToolError(f"{place.name}: a part of a path may not contain a slash")
    return quote(text, safe="/" if place.is_path else "")


def _fill_pairs(
    pairs: tuple[tuple[str, TextTemplate], ...],
    args: Mapping[str, Json],
    keys: Mapping[str, str],
) -> list[tuple[str, str]]:
    """Return names and values; those of missing arguments are left out, a list is repeated."""
    found: list[tuple[str, str]] = []
    for name, template in pairs:
        value = args.get(template.only_argument) if template.only_argument else None
        if isinstance(value, list):
            found += [(name, format_scalar(template.only_argument, each)) for each in value]
        elif (text := template.fill(args, keys)) is not None:
            found.append((name, text))
    return [(name, _checked_text(text)) for name, text in found]


def _checked_text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        raise ToolError("an argument holds a character that cannot be sent") from exc
    return text


def _fill_header(name: str, template: TextTemplate, keys: Mapping[str, str]) -> str:
    text = template.fill({}, keys) or ""
    if any(not " " <= ch <= "~" for ch in text):
        raise ToolError(
            f"the value of the header {name} holds a character that a header cannot have",
            fix="check the key in skills.entries",
        )
    return text


def _make_body(action: HttpAction, args: Mapping[str, Json]) -> bytes:
    if action.body is None:
        return b""
    if action.body_kind == "form":
        pairs = tuple((name, each) for name, each in action.body.items())
        text = urlencode(_fill_pairs(pairs, args, {}))
    elif action.body_kind == "text":
        text = action.body.fill(args, {}) or ""
    else:
        filled = _fill_json(action.body, args)
        text = json.dumps({} if filled is _ABSENT else filled, ensure_ascii=False)
    body = _checked_text(text).encode()
    if len(body) > MAX_BODY_BYTES:
        raise ToolError(f"the request would have more than {MAX_BODY_BYTES} bytes")
    return body


def _fill_json(body: BodyTemplate, args: Mapping[str, Json]) -> Any:
    """Return the body; a text that is one argument becomes its value, with its type."""
    if isinstance(body, TextTemplate):
        if body.only_argument:
            value = args.get(body.only_argument)
            return _ABSENT if value is None else value
        text = body.fill(args, {})
        return _ABSENT if text is None else text
    if isinstance(body, Mapping):
        filled = {name: _fill_json(each, args) for name, each in body.items()}
        return {name: each for name, each in filled.items() if each is not _ABSENT}
    if isinstance(body, list):
        return [one for each in body if (one := _fill_json(each, args)) is not _ABSENT]
    return body


def check_key_transport(action: HttpAction, policy: NetworkPolicy) -> None:
    """Raise ToolError when keys would be sent without TLS to a host that the owner did not name."""
    url = urlsplit(action.origin)
    uses_keys = any(each.key_names for _, each in (*action.headers, *action.query))
    if uses_keys and url.scheme != "https" and not policy.is_allowed(url.hostname or ""):
        raise ToolError(
            f"a key is not sent to {url.hostname} without TLS",
            fix="the URL of the action starts with https://",
        )


async def send_http_call(
    action: HttpAction, call: HttpCall, policy: NetworkPolicy
) -> FetchedResponse:
    """Send the request. Raises BlockedUrlError or FetchError."""
    origin = urlsplit(action.origin)

    def open_client(target: CheckedTarget, limits: FetchLimits) -> FetchClient:
        is_same = target.url.netloc == origin.netloc
        is_weaker = origin.scheme == "https" and target.url.scheme != "https"
        if not is_same or is_weaker:
            raise BlockedUrlError(f"{target.host}: the service redirects to another host")
        return make_client(target, limits)

    limits = FetchLimits(
        max_bytes=action.max_bytes,
        total_s=action.timeout_s,
        truncates=not action.select,
    )
    return await guarded_fetch(
        call.url,
        limits=limits,
        policy=policy,
        method=call.method,
        headers=call.headers,
        body=call.body,
        open_client=open_client,
    )


def format_response(action: HttpAction, response: FetchedResponse) -> ToolOutput:
    """Return what the model gets: the body as text, or the selected part of it."""
    details: dict[str, Json] = {"status": response.status, "bytes": len(response.body)}
    is_success = 200 <= response.status < 300
    text = _decode(response)
    if is_success and action.select:
        try:
            value = json.loads(response.body)
        except (ValueError, RecursionError) as exc:
            raise ToolError("the service did not answer with JSON") from exc
        part = select_part(value, action.select)
        text = part if isinstance(part, str) else json.dumps(part, ensure_ascii=False)
    if response.is_truncated:
        text += f"\n[cut after {action.max_bytes} bytes]"
    if not is_success:
        text = f"the service answered with the status {response.status}\n{text}".rstrip()
    return ToolOutput((Text(text or f"(status {response.status}, no content)"),), details,
                      is_error=not is_success)  # fmt: skip


def _decode(response: FetchedResponse) -> str:
    kind = one_line(response.headers.get("content-type", "") or "unknown type", 80)
    if b"\0" in response.body[:4_096]:
        return f"[{len(response.body)} bytes of {kind}: not text]"
    return response.body.decode("utf-8", "replace")


def describe_http_call(action: HttpAction, args: Mapping[str, Json]) -> str:
    """Return the request as a person reads it: complete, with the names of keys."""
    names = {
        name: f"${{ENV:{name}}}"
        for _, each in (*action.headers, *action.query)
        for name in each.key_names
    }
    call = make_http_call(action, args, names)
    url = call.url
    for shown in names.values():
        url = url.replace(quote(shown, safe=""), shown)
    lines = [f"request: {call.method} {url}"]
    lines += [f"header: {name}: {value}" for name, value in call.headers.items()]
    text = "\n".join(map(escape_line, lines))
    if not call.body:
        return text
    body = escape_deceptive_chars(call.body.decode("utf-8", "replace"))
    # Indented, so that it cannot imitate the lines before it.
    indented = "\n".join(f"    {line}" for line in body.split("\n"))
    return f"{text}\nbody ({len(call.body)} bytes):\n{indented}"
