"""Parse the metadata of a skill: who may invoke it, what it requires, how that is installed."""

from collections.abc import Mapping
from typing import Literal, TypeAlias, cast, get_args

from homarus.config import json5_document
from homarus.core.errors import ConfigError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json

InstallKind: TypeAlias = Literal["brew", "node", "go", "uv", "download"]

_OWN_NAMES = ("openclaw", "clawdbot", "moltbot")
_TRUE = frozenset({"true", "yes", "1", "on"})
_FALSE = frozenset({"false", "no", "0", "off"})


@dataclass(frozen=True, slots=True)
class Invocation:
    """Who may invoke a skill: users by a chat command, the model on its own."""

    by_user: bool = True
    by_model: bool = True


@dataclass(frozen=True, slots=True)
class Requires:
    """What must be available before a skill is offered; of `any_bins`, one is enough."""

    bins: tuple[str, ...] = ()
    any_bins: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    config: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Install:
    """One way to install a requirement; the kind decides which sources are set."""

    kind: InstallKind
    id: str = ""
    label: str = ""
    bins: tuple[str, ...] = ()
    os: tuple[str, ...] = ()
    formula: str = ""
    package: str = ""
    module: str = ""
    url: str = ""
    archive: str = ""
    extract: bool | None = None
    strip_components: int | None = None
    target_dir: str = ""


@dataclass(frozen=True, slots=True)
class Metadata:
    """The `openclaw` part of a skill's metadata; `always` ignores missing requirements."""

    always: bool | None = None
    emoji: str = ""
    homepage: str = ""
    skill_key: str = ""
    primary_env: str = ""
    os: tuple[str, ...] = ()
    requires: Requires | None = None
    install: tuple[Install, ...] = ()


def read_invocation(frontmatter: Mapping[str, str]) -> Invocation:
    """Return who may invoke the skill; both by default."""
    return Invocation(
        by_user=_flag(frontmatter.get("user-invocable"), default=True),
        by_model=not _flag(frontmatter.get("disable-model-invocation"), default=False),
    )


def read_metadata(frontmatter: Mapping[str, str]) -> Metadata | None:
    """Return the skill's metadata; None if it has none or it is invalid."""
    try:
        tree = json5_document.to_plain(
            json5_document.parse_json5(frontmatter.get("metadata") or "null")
        )
    except ConfigError:
        return None
    own = next((_table(tree, name) for name in _OWN_NAMES if _table(tree, name) is not None), None)
    if own is None:
        return None
    installs = own.get("install")
    return Metadata(
        always=_bool(own, "always"),
        emoji=_text(own, "emoji"),
        homepage=_text(own, "homepage"),
        skill_key=_text(own, "skillKey"),
        primary_env=_text(own, "primaryEnv"),
        os=_texts(own, "os"),
        requires=_read_requires(_table(own, "requires")),
        install=tuple(
            install
            for entry in (installs if isinstance(installs, list) else [])
            if (install := _read_install(entry))
        ),
    )


def _read_requires(table: Mapping[str, Json] | None) -> Requires | None:
    if table is None:
        return None
    return Requires(
        bins=_texts(table, "bins"),
        any_bins=_texts(table, "anyBins"),
        env=_texts(table, "env"),
        config=_texts(table, "config"),
    )


def _read_install(entry: Json) -> Install | None:
    if not isinstance(entry, dict):
        return None
    kind = (_text(entry, "kind") or _text(entry, "type")).lower()
    if kind not in get_args(InstallKind):
        return None
    strip = entry.get("stripComponents")
    return Install(
        kind=cast("InstallKind", kind),
        id=_text(entry, "id"),
        label=_text(entry, "label"),
        bins=_texts(entry, "bins"),
        os=_texts(entry, "os"),
        formula=_text(entry, "formula"),
        package=_text(entry, "package"),
        module=_text(entry, "module"),
        url=_text(entry, "url"),
        archive=_text(entry, "archive"),
        extract=_bool(entry, "extract"),
        strip_components=strip if type(strip) is int and strip >= 0 else None,
        target_dir=_text(entry, "targetDir"),
    )


def _flag(text: str | None, *, default: bool) -> bool:
    word = (text or "").strip().lower()
    return True if word in _TRUE else False if word in _FALSE else default


def _table(tree: Json, key: str) -> Mapping[str, Json] | None:
    value = tree.get(key) if isinstance(tree, dict) else None
    return value if isinstance(value, dict) else None


def _bool(table: Mapping[str, Json], key: str) -> bool | None:
    value = table.get(key)
    return value if isinstance(value, bool) else None


def _text(table: Mapping[str, Json], key: str) -> str:
    value = table.get(key)
    return value.strip() if isinstance(value, str) else ""


def _texts(table: Mapping[str, Json], key: str) -> tuple[str, ...]:
    """Return a list of strings; a string is split at commas."""
    value = table.get(key)
    items = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else []
    words = (str(item).strip() for item in items if isinstance(item, str | int | float))
    return tuple(word for word in words if word)
