"""What is fed with bytes from outside, and what must hold of it whatever they are.

Each target takes any bytes. It raises when a promise is broken: an error of another kind than the
parser's own, an answer that cannot be sent, a config that says something else once it is written
again. Time and memory are the fuzzer's to watch.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from pydantic import ValidationError

from homarus.config.check import check
from homarus.config.document import parse, plain
from homarus.config.edit import same
from homarus.config.rewrite import rewrite, serialize
from homarus.config.secrets import redact, restore_redacted
from homarus.core.errors import ConfigError, InvalidRequest
from homarus.gateway import frames
from homarus.gateway.connect import read_params
from homarus.gateway.methods import METHODS

DATA = Path(__file__).parents[1] / "data"


def read_frame(data: bytes) -> None:
    """A frame: read, or refused with an answer that can be sent; nothing else."""
    text = data.decode("utf-8", "replace")  # the socket below lets only UTF-8 through
    try:
        request = frames.read_request(text)
    except InvalidRequest as exc:
        _check(json.loads(frames.failure(frames.request_id(text), exc))["error"]["message"])
        return
    echoed = json.loads(frames.response(request.id, request.params))
    assert same(echoed["payload"], request.params), "an answer says something else"
    if request.method == "connect":
        try:
            read_params(request.params)
        except InvalidRequest as exc:
            _check(exc.message)
    elif method := METHODS.get(request.method):
        try:
            method.params.model_validate(request.params or {})
        except ValidationError as exc:
            _check(frames.first_error(exc))


def _check(message: str) -> None:
    """What a client is told, and what is logged: short, and in one line."""
    assert 0 < len(message) < 1_000
    assert "\n" not in message, "somebody else's text makes lines of its own"


def read_config(data: bytes) -> None:
    """A config: a tree that says the same when it is written again, or a ConfigError."""
    text = data.decode("utf-8", "replace")
    try:
        tree = plain(parse(text, "openclaw.json"))
    except ConfigError:
        return
    assert same(plain(parse(serialize(tree))), tree), "a fresh file says something else"
    assert same(restore_redacted(redact(tree), tree), tree), "a hidden value was not put back"
    if isinstance(tree, dict):
        changed = {**tree, "added": {"by": ["the fuzzer"]}}
        rewritten = rewrite(text, changed)
        assert same(plain(parse(rewritten.text)), changed), "a changed file says something else"
        check(tree)


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
}  # fmt: skip
