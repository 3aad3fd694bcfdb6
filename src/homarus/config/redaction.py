"""Redact secrets: in texts, and in config trees, where they can be restored.

This is the one implementation for logs, the audit log, events, questions to approvers, lines about
tool calls, and config trees for clients:

- `redact` replaces the values of our own secrets, what the patterns of `logging.redactPatterns`
  match, and whatever looks like a key, a token or a password;
- `mask_known_secrets` replaces the values of our own secrets only. Tool output is masked by it
  before a model, a transcript or a client gets it: a file with `sk-…` in it stays readable;
- `redact_tree` and `restore_redacted` are for the config as clients read and write it.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

from homarus.config.json5_document import KeyPath, Value
from homarus.config.tree_edit import format_path
from homarus.core.errors import UserError
from homarus.core.regex import compile_redactions

# Texts

_VALUE = r"""(?:\\?"[^"\r\n]{1,2000}|'[^'\r\n]{1,2000}|[^\s"',;&}\\]{3,})"""
_MEANS = r"[\\\"']{0,4}\s{0,3}[:=]\s{0,3}"
_MARKS = (
    "sk", "pk", "rk", "gsk", "xai", "ghp", "gho", "ghu", "ghs", "ghr", "github_pat", "glpat",
    "xoxa", "xoxb", "xoxe", "xoxp", "xoxr", "xoxs", "xapp", "npm", "hf", "pplx", "whsec", "shpat",
)  # fmt: skip
_SECRET_FIELDS = (
    "apikey", "api_key", "api-key", "privatekey", "private_key", "private-key", "secret",
    "password", "passwd", "passphrase", "credential",
)  # fmt: skip
_FIELDS = ("key", "token", "secret", "password", "signature")
# Patterns of secrets, by texts of which one must be in the line, so that most lines need no
# regular expression. The group of a pattern names the secret and is not redacted.
_SECRETS: dict[tuple[str, ...], str] = {
    ("private key-----",): r"(-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----)(?:(?!-----END)[\s\S])+",
    ("cookie",): rf"(\b(?:set-)?cookie{_MEANS})[^\r\n]{{3,}}",
    ("authorization",): rf"(\bauthorization{_MEANS}[\\\"']{{0,4}})"
    r"(?:[A-Z-]{2,20} {1,3})?[^\s\"',}\\]{3,}",
    ("bearer ", "basic "): r"(\b(?:bearer|basic) {1,3})[A-Z0-9._~+/-]{8,}=*",
    tuple(f"{name}=" for name in (*_FIELDS, "sig", "code")): (
        rf"([?&#](?:[\w-]{{0,30}}(?:{'|'.join(_FIELDS)})|sig|code)=)[^&\s\"'#]+"
    ),
    _SECRET_FIELDS: rf"((?:{'|'.join(_SECRET_FIELDS)})[\w-]{{0,20}}{_MEANS}){_VALUE}",
    ("token", "_key", "-key"): rf"((?:token|[-_]key){_MEANS})(?!\d{{1,7}}\b){_VALUE}",
    ("://",): r"(://[^/\s:@]{0,80}:)[^/\s@]{1,200}(?=@)",
    tuple(f"{mark}{sep}" for mark in _MARKS for sep in "-_"): (
        rf"\b(?:{'|'.join(_MARKS)})[-_][A-Z0-9_-]{{12,}}"
    ),
    ("aiza", "akia", "asia"): r"\bAIza[A-Z0-9_-]{12,}|\bA[KS]IA[A-Z0-9]{12,}",
    ("ya29.", "sg."): r"\b(?:ya29|SG)\.[\w-]{12,}(?:\.[\w-]+)?",
    ("eyj",): r"\beyJ[A-Z0-9_-]{5,1000}\.[A-Z0-9_-]{2,}(?:\.[A-Z0-9_-]*)?",
    (":",): r"\d{6,12}:[A-Z0-9_-]{30,}",
    (".",): r"\.[A-Z0-9_-]{6,7}\.[A-Z0-9_-]{27,}",
}


@lru_cache(1)
def _patterns() -> tuple[tuple[tuple[str, ...], re.Pattern[str]], ...]:
    """Compile the patterns at the first record: many commands log nothing."""
    return tuple((hints, re.compile(one, re.IGNORECASE)) for hints, one in _SECRETS.items())


_own_patterns: list[Callable[[str], str]] = []  # of `logging.redactPatterns`: one, or none


def set_patterns(patterns: Sequence[str]) -> None:
    """Set the patterns of `logging.redactPatterns`, for the program."""
    _own_patterns[:] = [compile_redactions(patterns)] if patterns else []


def redact(text: str) -> str:
    """Replace everything in the text that is or looks like a secret, or that the config names."""
    text = mask_known_secrets(redact_configured(text))
    lowered = text.lower()
    for hints, pattern in _patterns():
        if any(hint in lowered for hint in hints):
            text = pattern.sub(_blot, text)
    return text


def redact_configured(text: str) -> str:
    """Replace what `logging.redactPatterns` match; `redactSensitive` does not switch this off."""
    for replace_matches in _own_patterns:
        text = replace_matches(text)
    return text


def _blot(found: re.Match[str]) -> str:
    return f"{found[1] if found.lastindex else ''}***"


# Our own secrets

MASK: Final = "***"
MIN_SECRET_CHARS: Final = 8
_MAX_KNOWN: Final = 500
_ENV_SECRET = re.compile(
    r"(?:^|_)(?:API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?)(?:_\d+)?$",
    re.IGNORECASE,
)
_VARIABLE = re.compile(r"\$\{([A-Z_][A-Z0-9_]*)\}")


class _KnownSecrets:
    """The values of our own secrets: those of the config and environment, and those in use."""

    def __init__(self) -> None:
        self._find: Callable[[], Iterable[str]] = tuple
        self._used: dict[str, None] = {}
        self._values: tuple[str, ...] | None = None

    def set_source(self, find: Callable[[], Iterable[str]]) -> None:
        self._find, self._values = find, None

    def add(self, value: str) -> None:
        if value not in self._used and _is_maskable(value):
            self._used[value] = None
            self._values = None

    def clear(self) -> None:
        self._find, self._used, self._values = tuple, {}, None

    @property
    def values(self) -> tuple[str, ...]:
        """The values, longest first: one may contain another."""
        if self._values is None:
            found = {*self._used, *filter(_is_maskable, self._find())}
            self._values = tuple(sorted(found, key=len, reverse=True)[:_MAX_KNOWN])
        return self._values


_known = _KnownSecrets()


def set_config_secrets(raw: Mapping[str, Value], env: Mapping[str, str]) -> None:
    """Have the secrets of a config and its environment masked, those of the last one no more."""
    _known.set_source(lambda: _find_secrets(raw, env))


def add_known_secret(value: str) -> None:
    """Have a credential that this program uses masked."""
    _known.add(value)


def forget_known_secrets() -> None:
    """Mask none of our own secrets any more; for tests, because they hold for the process."""
    _known.clear()


def mask_known_secrets(text: str) -> str:
    """Replace the values of our own secrets."""
    for value in _known.values:
        if value in text:
            text = text.replace(value, MASK)
    return text


def _is_maskable(value: str) -> bool:
    """Return whether a value can be told from ordinary text: `changeme` cannot."""
    if len(value) < MIN_SECRET_CHARS:
        return False
    return len(value) >= 2 * MIN_SECRET_CHARS or not value.isalpha()


def _find_secrets(raw: Mapping[str, Value], env: Mapping[str, str]) -> Iterator[str]:
    for name, value in env.items():
        if _ENV_SECRET.search(name):
            yield value.strip()
    for path, text in _strings(dict(raw), ()):
        if named := _VARIABLE.fullmatch(text):
            if is_secret(path, "x"):
                yield env.get(named[1], "")
        elif is_secret(path, text) and "://" not in text:
            yield text


def _strings(tree: Value, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from _strings(value, (*path, key))
    elif isinstance(tree, list):
        for at, value in enumerate(tree):
            yield from _strings(value, (*path, at))
    elif isinstance(tree, str):
        yield path, tree


# Config trees

REDACTED = "__OPENCLAW_REDACTED__"  # the placeholder that clients know

_NAMES = re.compile(
    r"(token|password|passwd|passphrase|secret|api[_-]?key|private[_-]?key|service[_-]?account"
    r"|credentials?|authorization|cookie)$",
    re.IGNORECASE,
)
# Maps with keys of the user's choice: every value in them may be a secret.
_MAPS = {"env", "vars", "headers"}
_REFERENCE = re.compile(r"\$\{[A-Z_][A-Z0-9_]*\}")
_URL_WITH_SECRET = re.compile(
    r"[a-z][a-z0-9+.-]*://(?:[^/@\s]*:[^/@\s]+@"
    r"|\S*[?&#;][a-z0-9_.-]*(?:token|key|secret|password|passwd|sig|signature|auth)=[^&\s])",
    re.IGNORECASE,
)


def is_secret(path: KeyPath, value: Value) -> bool:
    """Return whether a value must be redacted; `${NAME}` is not a secret."""
    if not isinstance(value, str) or not value or _REFERENCE.fullmatch(value):
        return False
    keys = [step for step in path if isinstance(step, str)]
    return (
        any(_NAMES.search(key) for key in keys)
        or any(key in _MAPS for key in keys[:-1])
        or _URL_WITH_SECRET.search(value) is not None
    )


def redact_tree(tree: Value, path: KeyPath = ()) -> Value:
    """Return the tree with its secrets replaced by the placeholder."""
    if isinstance(tree, dict):
        return {key: redact_tree(value, (*path, key)) for key, value in tree.items()}
    if isinstance(tree, list):
        return [redact_tree(value, (*path, at)) for at, value in enumerate(tree)]
    return REDACTED if is_secret(path, tree) else tree


def restore_redacted(new: Value, old: Value, path: KeyPath = ()) -> Value:
    """Return the new tree with each placeholder replaced by the value of the old tree.

    Raises UserError for a placeholder without an old value.
    """
    if isinstance(new, dict):
        before = old if isinstance(old, dict) else {}
        return {
            key: restore_redacted(value, before.get(key), (*path, key))
            for key, value in new.items()
        }
    if isinstance(new, list):
        entries = _entries(new, old if isinstance(old, list) else [], path)
        return [restore_redacted(value, entries[at], (*path, at)) for at, value in enumerate(new)]
    if new != REDACTED:
        return new
    if not isinstance(old, str):
        raise UserError(
            f"{format_path(path)}: {REDACTED} only stands for a value that is hidden",
            fix="give the value itself",
        )
    return old


def _entries(new: list[Value], old: list[Value], path: KeyPath) -> list[Value]:
    """Return for each new list entry the old entry that it corresponds to, or None.

    An entry is matched by its redacted text, if as many entries have that text as before; else by
    its id; else by its index, if the list has the same length as before.
    """
    old_indexes, matched = _indexes_by_text(redact_tree(old, path)), dict[int, int]()
    for text, indexes in _indexes_by_text(new).items():
        if len(old_indexes.get(text, ())) == len(indexes):
            matched.update(zip(indexes, old_indexes[text], strict=True))
    ids = {item["id"]: index for index, item in reversed([*enumerate(old)]) if _has_id(item)}
    unmatched = set(range(len(old))) - set(matched.values()) if len(new) == len(old) else set[int]()
    for index, item in enumerate(new):
        other = ids.get(item["id"]) if _has_id(item) else index if index in unmatched else None
        if index not in matched and other is not None:
            matched[index] = other
    return [old[matched[index]] if index in matched else None for index in range(len(new))]


def _indexes_by_text(entries: list[Value]) -> dict[str, list[int]]:
    """Return the indexes of equal entries, by their text."""
    indexes: dict[str, list[int]] = {}
    for index, entry in enumerate(entries):
        indexes.setdefault(json.dumps(entry, sort_keys=True), []).append(index)
    return indexes


def _has_id(entry: Value) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("id"), str)
