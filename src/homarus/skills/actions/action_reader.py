"""Read `actions.json` of a skill: its actions, and what is wrong with those that are skipped.

    {"actions": [{"name": "forecast", "description": "…", "parameters": {…},
                  "http": {"method": "GET", "url": "https://a.example/{city}"}}]}

The file comes from outside. It is parsed strictly: an action that has an unknown key, a place
without an argument or a host that depends on one is named as a problem, and the others stay.
"""

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, cast, get_args

from homarus.core.errors import BlockedUrlError
from homarus.core.message import Json
from homarus.core.text import escape_invisible, one_line
from homarus.net.guard import parse_url
from homarus.policy.tool_call import Effect
from homarus.skills.actions.definition import (
    BASE_DIR,
    DEFAULT_RESPONSE_BYTES,
    DEFAULT_TIMEOUT_S,
    FILE_NAME,
    ActionFile,
    BodyKind,
    BodyTemplate,
    CommandAction,
    HttpAction,
    HttpMethod,
    SkillAction,
    find_keys,
    list_templates,
)
from homarus.skills.actions.json_select import parse_select
from homarus.skills.actions.template import (
    ActionFormatError,
    ArgumentPlace,
    TextTemplate,
    parse_template,
)

MAX_FILE_BYTES: Final = 64_000
MAX_ACTIONS: Final = 20
MAX_DESCRIPTION_CHARS: Final = 600
MAX_SCHEMA_CHARS: Final = 4_000
MAX_ARGUMENTS: Final = 30
MAX_ITEMS: Final = 64  # arguments of a command, headers, parts of a query
MAX_DEPTH: Final = 12
MAX_RESPONSE_BYTES: Final = 2_000_000
MAX_TIMEOUT_S: Final = 600.0

_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,39}")
_ARGUMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_HEADER_TEXT: Final = re.compile(r"[\x20-\x7e]*")
_URL: Final = re.compile(r"(?P<origin>https?://[^/?#{}$\\]+)(?P<path>/[^?#\\]*)?")
# Headers that decide where a request goes, or how long it is.
_REFUSED_HEADERS: Final = frozenset(
    {
        "host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer",
        "expect", "keep-alive", "accept-encoding", "content-encoding", "cookie", "forwarded",
    }
)  # fmt: skip
_REFUSED_PREFIXES: Final = ("proxy-", "x-forwarded-", "sec-")
# Programs that would read an argument as a program of theirs.
_SHELLS: Final = frozenset(
    {"sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "csh", "tcsh", "busybox", "eval"}
)
_EFFECTS: Final = frozenset(get_args(Effect))
_KEYS: Final = frozenset({"name", "description", "parameters", "http", "command", "effects"})
_HTTP_KEYS: Final = frozenset(
    {"method", "url", "headers", "query", "body", "bodyType", "maxBytes", "timeoutSeconds",
     "select"}
)  # fmt: skip
_COMMAND_KEYS: Final = frozenset({"argv", "stdin", "env", "timeoutSeconds"})

_KEY_IN_BODY: Final = "http.body contains a key: use a header or the query"


def read_actions(data: bytes, *, key_names: Collection[str] = ()) -> ActionFile:
    """Return the actions of a file; `key_names` are the variables that the skill declares."""
    try:
        entries = _read_entries(data)
    except (ValueError, RecursionError) as exc:
        return ActionFile(problems=(f"{FILE_NAME}: {one_line(str(exc), 200)}",))
    actions: dict[str, SkillAction] = {}
    problems: list[str] = []
    if len(entries) > MAX_ACTIONS:
        problems.append(f"{FILE_NAME}: only the first {MAX_ACTIONS} of {len(entries)} are used")
    for number, entry in enumerate(entries[:MAX_ACTIONS], 1):
        name = entry.get("name") if isinstance(entry, dict) else None
        shown = one_line(name, 40) if isinstance(name, str) else f"number {number}"
        try:
            action = _read_action(entry, frozenset(key_names))
            if action.name in actions:
                raise ActionFormatError("another action has the same name")
        except (ValueError, RecursionError) as exc:
            problems.append(f"{FILE_NAME}: action {shown}: {one_line(str(exc), 200)}")
        else:
            actions[action.name] = action
    return ActionFile(tuple(actions.values()), tuple(problems))


def _read_entries(data: bytes) -> list[Json]:
    if len(data) > MAX_FILE_BYTES:
        raise ActionFormatError(f"it has more than {MAX_FILE_BYTES} bytes")
    try:
        tree = json.loads(data.decode("utf-8-sig"), object_pairs_hook=_unique_keys)
    except UnicodeDecodeError as exc:
        raise ActionFormatError("it is not UTF-8") from exc
    _check_depth(tree)
    if not isinstance(tree, dict) or set(tree) - {"actions"}:
        raise ActionFormatError('it is not an object with the one key "actions"')
    entries = tree.get("actions")
    if not isinstance(entries, list):
        raise ActionFormatError('"actions" is not a list')
    return entries


def _unique_keys(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ActionFormatError(f"the key {one_line(name, 40)!r} is there twice")
        found[name] = value
    return found


def _check_depth(value: Json, depth: int = 0) -> None:
    if depth > MAX_DEPTH:
        raise ActionFormatError(f"it is nested more than {MAX_DEPTH} levels deep")
    for each in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        _check_depth(each, depth + 1)


def _read_action(entry: Json, key_names: frozenset[str]) -> SkillAction:
    table = _table(entry, "an action", _KEYS)
    name = table.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ActionFormatError("a name has 1 to 40 lower-case letters, digits, - and _")
    description = table.get("description")
    if not isinstance(description, str) or not description.strip():
        raise ActionFormatError("the description is missing")
    if len(description) > MAX_DESCRIPTION_CHARS:
        raise ActionFormatError(f"the description has more than {MAX_DESCRIPTION_CHARS} characters")
    parameters = _read_parameters(table.get("parameters"))
    if ("http" in table) == ("command" in table):
        raise ActionFormatError("it has either http or command")
    does: HttpAction | CommandAction = (
        _read_http(table["http"]) if "http" in table else _read_command(table["command"])
    )
    _check_places(does, parameters)
    if unknown := sorted(find_keys(does) - key_names):
        raise ActionFormatError(f"{unknown[0]} is not in requires.env or primaryEnv of the skill")
    written = json.dumps(table, sort_keys=True, ensure_ascii=False, indent=1)
    digest = hashlib.sha256(written.encode("utf-8", "surrogatepass")).hexdigest()
    text = escape_invisible(" ".join(description.split()))
    effects = _read_effects(table.get("effects"), does)
    return SkillAction(name, text, parameters, does, effects, digest, written)


def _read_effects(value: Json, does: "HttpAction | CommandAction") -> frozenset[Effect]:
    """Return what a call changes: what its kind always does, and what the skill adds to that."""
    added = [] if value is None else value
    if not isinstance(added, list) or any(each not in _EFFECTS for each in added):
        raise ActionFormatError(f"effects is not a list of {', '.join(sorted(_EFFECTS))}")
    found = set(cast("list[Effect]", added))
    if isinstance(does, CommandAction):
        found.add("exec")
    elif not does.is_reading:
        found.add("send")
    return frozenset(found)


# The arguments


def _read_parameters(value: Json) -> dict[str, Json]:
    if value is None:
        return {"type": "object", "properties": {}}
    if not isinstance(value, dict) or value.get("type", "object") != "object":
        raise ActionFormatError("parameters is not the JSON schema of an object")
    if len(json.dumps(value)) > MAX_SCHEMA_CHARS:
        raise ActionFormatError(f"parameters has more than {MAX_SCHEMA_CHARS} characters")
    properties = value.get("properties", {})
    if not isinstance(properties, dict) or len(properties) > MAX_ARGUMENTS:
        raise ActionFormatError(
            f"parameters.properties is not an object of up to {MAX_ARGUMENTS} keys"
        )
    for name, schema in properties.items():
        if not _ARGUMENT.fullmatch(name) or name == BASE_DIR or not isinstance(schema, dict):
            raise ActionFormatError(f"{one_line(name, 40)!r} is no argument with a schema")
    required = value.get("required", [])
    if not isinstance(required, list) or any(each not in properties for each in required):
        raise ActionFormatError("parameters.required names something that is no property")
    if "$ref" in json.dumps(value):
        raise ActionFormatError("parameters uses $ref, which is not followed")
    return {"properties": {}, **_escape_texts(value), "type": "object"}


def _escape_texts(value: Any) -> Any:
    """Return a schema whose texts cannot hide or reorder anything."""
    if isinstance(value, str):
        return escape_invisible(value)
    if isinstance(value, dict):
        return {escape_invisible(key): _escape_texts(each) for key, each in value.items()}
    return [_escape_texts(each) for each in value] if isinstance(value, list) else value


def _check_places(does: HttpAction | CommandAction, parameters: Mapping[str, Json]) -> None:
    properties = cast("Mapping[str, Json]", parameters["properties"])
    allowed = {*properties, BASE_DIR} if isinstance(does, CommandAction) else set(properties)
    for template in list_templates(does):
        if unknown := sorted(template.argument_names - allowed):
            raise ActionFormatError(f"{{{unknown[0]}}} is no argument in parameters.properties")
    if isinstance(does, HttpAction):
        required = cast("Sequence[str]", parameters.get("required") or ())
        for segment in does.path:
            if missing := sorted(segment.argument_names - set(required)):
                raise ActionFormatError(f"{{{missing[0]}}} is in the path, so it must be required")


# A request


def _read_http(value: Json) -> HttpAction:
    table = _table(value, "http", _HTTP_KEYS)
    method = table.get("method", "GET")
    if method not in get_args(HttpMethod):
        raise ActionFormatError(f"http.method is not one of {', '.join(get_args(HttpMethod))}")
    origin, path = _read_url(table.get("url"))
    body_kind = table.get("bodyType", "json")
    if body_kind not in get_args(BodyKind):
        raise ActionFormatError(f"http.bodyType is not one of {', '.join(get_args(BodyKind))}")
    if "body" in table and method == "GET":
        raise ActionFormatError("a GET request has no body: use query")
    query = _read_pairs(table.get("query"), "http.query")
    headers = _read_pairs(table.get("headers"), "http.headers")
    for name, template in headers:
        _check_header(name, template)
    max_bytes = table.get("maxBytes", DEFAULT_RESPONSE_BYTES)
    if type(max_bytes) is not int or not 1 <= max_bytes <= MAX_RESPONSE_BYTES:
        raise ActionFormatError(f"http.maxBytes is not a number from 1 to {MAX_RESPONSE_BYTES}")
    select = table.get("select", "")
    if not isinstance(select, str):
        raise ActionFormatError("http.select is not a text")
    return HttpAction(
        method,
        origin,
        path,
        query,
        headers,
        _read_body(table.get("body"), body_kind),
        body_kind,
        max_bytes,
        _read_timeout(table),
        parse_select(select) if select else (),
    )


def _read_url(value: Json) -> tuple[str, tuple[TextTemplate, ...]]:
    """Return the origin, which no argument can change, and the templates of the path."""
    if not isinstance(value, str) or not (found := _URL.fullmatch(value)):
        raise ActionFormatError(
            "http.url is not https://HOST/PATH with arguments in the path alone; the query has a"
            " key of its own"
        )
    try:
        parts, _, _ = parse_url(found["origin"] + "/")
    except BlockedUrlError as exc:
        raise ActionFormatError(f"http.url: {exc.message}") from exc
    segments = tuple(parse_template(each) for each in (found["path"] or "/")[1:].split("/"))
    for segment in segments:
        if segment.key_names:
            raise ActionFormatError("http.url contains a key: use a header or the query")
        text = "".join(each for each in segment.pieces if isinstance(each, str))
        if not segment.argument_names and text in {".", ".."}:
            raise ActionFormatError("http.url contains . or ..")
    return f"{parts.scheme}://{parts.netloc}", segments


def _check_header(name: str, template: TextTemplate) -> None:
    lower = name.lower()
    if not _HEADER.fullmatch(name) or lower in _REFUSED_HEADERS:
        raise ActionFormatError(f"http.headers: {one_line(name, 40)!r} cannot be set")
    if lower.startswith(_REFUSED_PREFIXES):
        raise ActionFormatError(f"http.headers: {one_line(name, 40)!r} cannot be set")
    if template.argument_names:
        raise ActionFormatError(f"http.headers: {name} depends on an argument: use query or body")
    if any(isinstance(each, str) and not _HEADER_TEXT.fullmatch(each) for each in template.pieces):
        raise ActionFormatError(f"http.headers: {name} has a character that a header cannot have")


def _read_body(value: Json, kind: BodyKind) -> BodyTemplate:
    if value is None:
        return None
    if kind == "text" and not isinstance(value, str):
        raise ActionFormatError("http.body of the type text is not a text")
    if kind == "form":
        pairs = dict(_read_pairs(value, "http.body"))
        if any(each.key_names for each in pairs.values()):
            raise ActionFormatError(_KEY_IN_BODY)
        return pairs
    return _make_body(value)


def _make_body(value: Json) -> BodyTemplate:
    if isinstance(value, str):
        template = parse_template(value)
        if template.key_names:
            raise ActionFormatError(_KEY_IN_BODY)
        return template
    if isinstance(value, dict):
        return {name: _make_body(each) for name, each in value.items()}
    return [_make_body(each) for each in value] if isinstance(value, list) else value


def _read_pairs(value: Json, where: str) -> tuple[tuple[str, TextTemplate], ...]:
    if value is None:
        return ()
    if not isinstance(value, dict) or len(value) > MAX_ITEMS:
        raise ActionFormatError(f"{where} is not an object of up to {MAX_ITEMS} texts")
    pairs: list[tuple[str, TextTemplate]] = []
    for name, each in value.items():
        if not name or not isinstance(each, str | int | float):
            raise ActionFormatError(f"{where}: the value of {one_line(name, 40)!r} is not a text")
        text = each if isinstance(each, str) else json.dumps(each)
        pairs.append((name, parse_template(text)))
    return tuple(pairs)


# A command


def _read_command(value: Json) -> CommandAction:
    table = _table(value, "command", _COMMAND_KEYS)
    items = table.get("argv")
    if not isinstance(items, list) or not 1 <= len(items) <= MAX_ITEMS:
        raise ActionFormatError(f"command.argv is not a list of 1 to {MAX_ITEMS} items")
    argv = tuple(_read_item(each) for each in items)
    _check_program(argv[0])
    for template in (each for item in argv for each in item):
        if template.key_names:
            raise ActionFormatError(
                "command.argv contains a key, which other programs could read: use env"
            )
    stdin = table.get("stdin")
    if stdin is not None and not isinstance(stdin, str):
        raise ActionFormatError("command.stdin is not a text")
    return CommandAction(
        argv,
        None if stdin is None else parse_template(stdin),
        _read_variables(table.get("env")),
        _read_timeout(table),
    )


def _read_item(item: Json) -> tuple[TextTemplate, ...]:
    texts = item if isinstance(item, list) else [item]
    if not texts or len(texts) > MAX_ITEMS or any(not isinstance(each, str) for each in texts):
        raise ActionFormatError("an item of command.argv is neither a text nor a list of texts")
    templates = tuple(parse_template(each) for each in texts if isinstance(each, str))
    if any(
        isinstance(piece, ArgumentPlace) and piece.is_path
        for each in templates
        for piece in each.pieces
    ):
        raise ActionFormatError("{+…} is for paths of URLs alone")
    return templates


def _check_program(item: tuple[TextTemplate, ...]) -> None:
    """Raise ActionFormatError unless the first item is the fixed name or path of a program."""
    places = item[0].argument_names - {BASE_DIR}
    if len(item) != 1 or places or not item[0].pieces:
        raise ActionFormatError("command.argv starts with the name of a program, without arguments")
    last = item[0].pieces[-1]
    name = last.rpartition("/")[2] if isinstance(last, str) else ""
    if not name or name.startswith("-") or name in {".", ".."}:
        raise ActionFormatError("command.argv starts with the name of a program")
    if name.lower() in _SHELLS:
        raise ActionFormatError(f"command.argv starts with {name}: a shell is not run")


def _read_variables(value: Json) -> tuple[str, ...]:
    names = [] if value is None else value
    if not isinstance(names, list) or any(not isinstance(each, str) for each in names):
        raise ActionFormatError("command.env is not a list of names of variables")
    return tuple(str(each) for each in names)


def _read_timeout(table: Mapping[str, Json]) -> float:
    value = table.get("timeoutSeconds", DEFAULT_TIMEOUT_S)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ActionFormatError("timeoutSeconds is not a number")
    if not 0 < value <= MAX_TIMEOUT_S:
        raise ActionFormatError(f"timeoutSeconds is not between 0 and {MAX_TIMEOUT_S:g}")
    return float(value)


def _table(value: Json, where: str, known: frozenset[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ActionFormatError(f"{where} is not an object")
    if unknown := sorted(set(value) - known):
        raise ActionFormatError(f"{where} has the unknown key {one_line(unknown[0], 40)!r}")
    return value
