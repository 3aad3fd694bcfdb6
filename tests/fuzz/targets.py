"""Fuzz targets: parsers of untrusted bytes, with their invariants.

Each target accepts any bytes. It raises when an invariant is violated: another error than the
parser's own, a response that cannot be sent, a config that differs after it is written and parsed
again. The fuzzer limits time and memory.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from pydantic import ValidationError

from homarus.config.check import check_config
from homarus.config.json5_document import parse_json5, to_plain
from homarus.config.redaction import redact_tree, restore_redacted
from homarus.config.rewrite import rewrite, serialize
from homarus.config.tree_edit import json_equal
from homarus.core.errors import ConfigError, InvalidRequestError
from homarus.gateway import frames
from homarus.gateway.connect_params import parse_connect_params
from homarus.gateway.methods import METHODS
from homarus.skills.frontmatter import FrontmatterError, read_frontmatter, read_texts
from homarus.skills.listing import format_skill
from homarus.skills.skill import SkillTier, make_skill

DATA = Path(__file__).parents[1] / "data"


def read_frame(data: bytes) -> None:
    """A frame is parsed, or refused with a response that can be sent."""
    text = data.decode("utf-8", "replace")  # the WebSocket layer only passes valid UTF-8
    try:
        request = frames.parse_request(text)
    except InvalidRequestError as exc:
        _check(json.loads(frames.error_frame(frames.request_id(text), exc))["error"]["message"])
        return
    echoed = json.loads(frames.response_frame(request.id, request.params))
    assert json_equal(echoed["payload"], request.params), "an answer says something else"
    if request.method == "connect":
        try:
            parse_connect_params(request.params)
        except InvalidRequestError as exc:
            _check(exc.message)
    elif method := METHODS.get(request.method):
        try:
            method.params.model_validate(request.params or {})
        except ValidationError as exc:
            _check(frames.first_error(exc))


def _check(message: str) -> None:
    """Error texts for clients and the log are short and on one line."""
    assert 0 < len(message) < 1_000
    assert "\n" not in message, "somebody else's text makes lines of its own"


def read_config(data: bytes) -> None:
    """A config is refused with a ConfigError, or equal after it is written and parsed again."""
    text = data.decode("utf-8", "replace")
    try:
        tree = to_plain(parse_json5(text, "openclaw.json"))
    except ConfigError:
        return
    assert json_equal(to_plain(parse_json5(serialize(tree))), tree), (
        "a fresh file says something else"
    )
    assert json_equal(restore_redacted(redact_tree(tree), tree), tree), (
        "a hidden value was not put back"
    )
    if isinstance(tree, dict):
        changed = {**tree, "added": {"by": ["the fuzzer"]}}
        rewritten = rewrite(text, changed)
        assert json_equal(to_plain(parse_json5(rewritten.text)), changed), (
            "a changed file says something else"
        )
        check_config(tree)


def read_skill(data: bytes) -> None:
    """A skill is made of any text, or refused with a FrontmatterError of one short line."""
    text = data.decode("utf-8", "replace")
    try:
        values = read_frontmatter(text)
        assert json_equal(json.loads(json.dumps(values)), values), "a value is not JSON"
        skill = make_skill(values, SkillTier.MANAGED, Path("/skills/x/SKILL.md"))
        assert skill.description and skill.name.isprintable()
        assert skill.name in format_skill(skill, Path("/x")) or set(skill.name) & set("&")
    except FrontmatterError as exc:
        _check(str(exc))
    assert all(isinstance(value, str) for value in read_texts(text).values())


def skill_seeds() -> Iterator[bytes]:
    yield b"---\nname: x\ndescription: >\n  What it\n  does\nuser-invocable: no\n---\n# X\n"
    yield b'---\ndescription: a: b\nmetadata: {"openclaw":{"os":["linux"],"always":true}} // c\n---'
    yield b"\xef\xbb\xbf---\r\na: &b [1, 'c', {d: ~}]\r\ne: *b\r\nf: |\r\n  g\r\n---\r\n"
    yield b"---\nmetadata:\n  openclaw:\n    requires: {c: [d]}\n    install:\n    - a: b\n---\n"


def frame_seeds() -> Iterator[bytes]:
    for file in sorted((DATA / "frames").glob("*.json")):
        captured = json.loads(file.read_text(encoding="utf-8"))
        for one in captured if isinstance(captured, list) else ():
            if one.get("frame", {}).get("type") == "req":
                yield json.dumps(one["frame"]).encode()


def config_seeds() -> Iterator[bytes]:
    yield b"{}"
    yield b"// mine\n{agents: {defaults: {model: 'a/b', /* x */ timeoutSeconds: +5,},},}\n"
    yield b'{"$include": "./more.json", "env": {"vars": {"A": "${B}"}}, "models": {"mode": 1}}'
    yield b"{gateway: {port: 0x4965, auth: {token: \"a\\u0062\\\nc\"}}, tools: {deny: ['exec',]}}"


TARGETS: Mapping[str, tuple[Callable[[bytes], None], Callable[[], Iterator[bytes]]]] = {
    "frames": (read_frame, frame_seeds),
    "config": (read_config, config_seeds),
    "skill": (read_skill, skill_seeds),
}
WORDS: Mapping[str, tuple[str, ...]] = {
    "frames": (
        '"type":"req"', '"id":', '"method":', '"params":', '"connect"', '"minProtocol":3',
        '"client":', '"device":', '"sessionKey":', '"idempotencyKey":', "1e999", "NaN", "\\\\ud800",
        "[[[[", "{{", "null", *(f'"{name}"' for name in sorted(METHODS)),
    ),
    "config": (
        "agents", "defaults", "models", "providers", "gateway", "auth", "token", "$include", "env",
        "${A}", "__OPENCLAW_REDACTED__", "//", "/*", "*/", "\\\\u", "\\\\x", "0x", "+", "Infinity",
        "[[[[", "{a:", "'", "list", "id",
    ),
    "skill": (
        "---\\x0A", "name: ", "description: ", "metadata: ", "openclaw", "requires", "&a ",
        "*a", "<<: ", "!!str ", "!x ", "? ", ": ", "- ", "|\\x0A", ">-\\x0A", "[[[[", "{", "}",
        "\\\\ud83d", "'", "# ", "\\x09", "%YAML 1.1\\x0A", "...\\x0A", "//",
    ),
}  # fmt: skip
