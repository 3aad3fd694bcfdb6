"""Parse inline directives: `/think high`, `/model opus`, `/queue collect cap:5` in a message.

A directive is at the start of the text or after white space, outside code fences. It is removed
with its argument; the text around it stays as it was. An argument that is no level (`/think hgih`)
is removed too, as in OpenClaw, and stored as `raw`, for the reply that lists the valid words.
"""

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Generic, Literal, TypeAlias, TypeVar, get_args

from homarus.core.errors import UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.fences import fence_at, find_fences
from homarus.core.units import parse_duration_ms
from homarus.sessions import levels

ExecHost: TypeAlias = Literal["sandbox", "gateway", "node"]
ExecSecurity: TypeAlias = Literal["deny", "allowlist", "full"]
ExecAsk: TypeAlias = Literal["off", "on-miss", "always"]

_V = TypeVar("_V")

_RESET_WORDS = frozenset({"default", "reset", "clear"})
_EXEC_OPTION = re.compile(r"\s*(host|security|ask|node)[=:](\S*)", re.IGNORECASE)
_QUEUE_WORD = re.compile(r"\s*(\S+)")
_QUEUE_OPTION = re.compile(r"(debounce|cap|drop)[=:](.*)", re.IGNORECASE)
_CAP = re.compile(r"0*([1-9][0-9]{0,6})(?:\.[0-9]*)?")
_MODEL = r"([A-Za-z0-9_.:@-]+(?:/[A-Za-z0-9_.:@-]+)*)?"


@dataclass(frozen=True, slots=True)
class DirectiveValue(Generic[_V]):
    """A requested value; `raw` is the word, `value` is None when the word is unknown."""

    value: _V | None
    raw: str = ""


@dataclass(frozen=True, slots=True)
class ExecDirective:
    """`/exec host=… security=… ask=… node=…`: where commands run, and the approval they need."""

    host: DirectiveValue[ExecHost] | None = None
    security: DirectiveValue[ExecSecurity] | None = None
    ask: DirectiveValue[ExecAsk] | None = None
    node: DirectiveValue[str] | None = None


@dataclass(frozen=True, slots=True)
class QueueDirective:
    """`/queue MODE debounce:… cap:… drop:…`; `reset` removes what was set before."""

    mode: DirectiveValue[levels.QueueMode] | None = None
    debounce_ms: DirectiveValue[int] | None = None
    cap: DirectiveValue[int] | None = None
    drop: DirectiveValue[levels.QueueDrop] | None = None
    reset: bool = False


@dataclass(frozen=True, slots=True)
class ModelDirective:
    """`/model NAME@PROFILE`, or `/ALIAS`; an empty name asks for the current model."""

    name: str = ""
    profile: str = ""


@dataclass(frozen=True, slots=True)
class Directives:
    """The directives of a message, and its text without them."""

    text: str
    think: DirectiveValue[levels.ThinkLevel] | None = None
    verbose: DirectiveValue[levels.VerboseLevel] | None = None
    reasoning: DirectiveValue[levels.ReasoningLevel] | None = None
    elevated: DirectiveValue[levels.ElevatedLevel] | None = None
    exec: ExecDirective | None = None
    status: bool = False
    model: ModelDirective | None = None
    queue: QueueDirective | None = None


def parse_directives(
    text: str,
    *,
    model_aliases: Iterable[str] = (),
    is_command: Callable[[str], bool] = lambda _name: False,
    allow_elevated: bool = True,
    allow_exec: bool = True,
    allow_status: bool = True,
) -> Directives:
    """Extract every directive of a message.

    `is_command` returns whether a word names a command: an alias of that name is no directive.
    """
    if "/" not in text:
        return Directives(text.strip())
    text, think = extract_think(text)
    text, verbose = extract_verbose(text)
    text, reasoning = extract_reasoning(text)
    text, elevated = extract_elevated(text) if allow_elevated else (text, None)
    text, run = extract_exec(text) if allow_exec else (text, None)
    text, status = extract_status(text) if allow_status else (text, False)
    text, model = extract_model(text, model_aliases, is_command)
    text, queue = extract_queue(text)
    return Directives(text, think, verbose, reasoning, elevated, run, status, model, queue)


def extract_think(text: str) -> tuple[str, DirectiveValue[levels.ThinkLevel] | None]:
    """`/think LEVEL`, `/thinking`, `/t`."""
    return _extract_level(text, "thinking|think|t", levels.think_level)


def extract_verbose(text: str) -> tuple[str, DirectiveValue[levels.VerboseLevel] | None]:
    """`/verbose LEVEL`, `/v`."""
    return _extract_level(text, "verbose|v", levels.verbose_level)


def extract_notice(text: str) -> tuple[str, DirectiveValue[levels.VerboseLevel] | None]:
    """`/notice LEVEL`, `/notices`."""
    return _extract_level(text, "notices|notice", levels.notice_level)


def extract_reasoning(text: str) -> tuple[str, DirectiveValue[levels.ReasoningLevel] | None]:
    """`/reasoning LEVEL`, `/reason`."""
    return _extract_level(text, "reasoning|reason", levels.reasoning_level)


def extract_elevated(text: str) -> tuple[str, DirectiveValue[levels.ElevatedLevel] | None]:
    """`/elevated LEVEL`, `/elev`."""
    return _extract_level(text, "elevated|elev", levels.elevated_level)


def extract_status(text: str) -> tuple[str, bool]:
    """`/status`."""
    found = _find(text, "status")
    return (_remove(text, found.start(), found.end()), True) if found else (text.strip(), False)


def extract_exec(text: str) -> tuple[str, ExecDirective | None]:
    """Extract `/exec` and its options; the first word that is no option ends them."""
    found = _find(text, "exec")
    if not found:
        return text.strip(), None
    raw: dict[str, str] = {}
    end = found.end()
    while option := _EXEC_OPTION.match(text, end):
        raw[option[1].lower()] = option[2]
        end = option.end()
    setting = ExecDirective(
        host=_choose(raw.get("host"), get_args(ExecHost)),
        security=_choose(raw.get("security"), get_args(ExecSecurity)),
        ask=_choose(raw.get("ask"), get_args(ExecAsk)),
        node=DirectiveValue(raw["node"] or None, raw["node"]) if "node" in raw else None,
    )
    return _remove(text, found.start(), end), setting


def extract_queue(text: str) -> tuple[str, QueueDirective | None]:
    """`/queue`, one mode and its options; the first word that is neither ends them."""
    found = _find(text, "queue")
    if not found:
        return text.strip(), None
    mode: DirectiveValue[levels.QueueMode] | None = None
    raw: dict[str, str] = {}
    reset, end = False, found.end()
    while not reset and (word := _QUEUE_WORD.match(text, end)):
        lowered = word[1].lower()
        if lowered in _RESET_WORDS:
            reset = True
        elif option := _QUEUE_OPTION.fullmatch(word[1]):
            raw[option[1].lower()] = option[2]
        elif mode is None and (named := levels.queue_mode(lowered)):
            mode = DirectiveValue(named, word[1])
        else:
            break
        end = word.end()
    setting = QueueDirective(
        mode=mode,
        debounce_ms=_read(raw.get("debounce"), _duration_ms),
        cap=_read(raw.get("cap"), _cap),
        drop=_read(raw.get("drop"), levels.queue_drop),
        reset=reset,
    )
    return _remove(text, found.start(), end), setting


def extract_model(
    text: str,
    aliases: Iterable[str] = (),
    is_command: Callable[[str], bool] = lambda _name: False,
) -> tuple[str, ModelDirective | None]:
    """`/model NAME`, or `/ALIAS` for an alias that is no command's name."""
    found = _find(text, "model", _MODEL)
    if not found:
        names = sorted({alias.strip() for alias in aliases if alias.strip()}, key=len, reverse=True)
        free = [re.escape(name) for name in names if not is_command(name)]
        found = _find(text, "|".join(free), capture_name=True) if free else None
    if not found:
        return text.strip(), None
    name, _, profile = (found[1] or "").partition("@")
    return _remove(text, found.start(), found.end()), ModelDirective(name, profile)


def _extract_level(
    text: str, names: str, parse: Callable[[str], _V | None]
) -> tuple[str, DirectiveValue[_V] | None]:
    found = _find(text, names, "([A-Za-z-]*)")
    if not found:
        return text.strip(), None
    return _remove(text, found.start(), found.end()), DirectiveValue(parse(found[1]), found[1])


@lru_cache(maxsize=64)
def _pattern(names: str, argument: str, *, capture_name: bool) -> re.Pattern[str]:
    name = f"({names})" if capture_name else f"(?:{names})"
    return re.compile(rf"(?<!\S)/{name}(?![^\s:])\s*:?\s*{argument}", re.IGNORECASE)


def _find(
    text: str, names: str, argument: str = "", *, capture_name: bool = False
) -> re.Match[str] | None:
    matches = _pattern(names, argument, capture_name=capture_name).finditer(text)
    first = next(matches, None)
    if first is None or ("```" not in text and "~~~" not in text):
        return first
    fences = find_fences(text)
    while first is not None and fence_at(fences, first.start()):
        first = next(matches, None)
    return first


def _remove(text: str, start: int, end: int) -> str:
    """Remove a part of the text; the gap becomes a space, a line or a paragraph break."""
    before, after = text[:start].rstrip(), text[end:].lstrip()
    tail = len(text) - len(after)
    taken = text[start:end].rstrip()
    breaks = max(text.count("\n", len(before), start), text.count("\n", start + len(taken), tail))
    joint = "\n" * min(breaks, 2) or " "
    return (before + joint + after if before and after else before + after).strip()


def _choose(raw: str | None, choices: tuple[_V, ...]) -> DirectiveValue[_V] | None:
    if raw is None:
        return None
    return DirectiveValue(next((choice for choice in choices if choice == raw.lower()), None), raw)


def _read(raw: str | None, parse: Callable[[str], _V | None]) -> DirectiveValue[_V] | None:
    return None if raw is None else DirectiveValue(parse(raw), raw)


def _cap(word: str) -> int | None:
    found = _CAP.fullmatch(word)
    return int(found[1]) if found else None


def _duration_ms(word: str) -> int | None:
    try:
        return parse_duration_ms(word)
    except UserError:
        return None
