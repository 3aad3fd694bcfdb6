"""A skill: what it says about itself, who may invoke it, and what it requires."""

import re
from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from pathlib import Path
from typing import Final, Literal, TypeAlias, cast, get_args

from homarus.config import json5_document
from homarus.core.errors import ConfigError
from homarus.core.fast_dataclass import dataclass
from homarus.core.file_stamp import FileStamp
from homarus.core.message import Json
from homarus.core.text import one_line
from homarus.skills.frontmatter import FrontmatterError, format_value
from homarus.skills.requirements import Requires

InstallKind: TypeAlias = Literal["brew", "apt", "node", "go", "uv", "download"]

SKILL_FILE: Final = "SKILL.md"
MAX_NAME_CHARS: Final = 64

# OpenClaw's name for the part of `metadata` that it reads, and its former names.
_OWN_NAMES: Final = ("openclaw", "clawdbot", "moltbot")
_TRUE: Final = frozenset({"true", "yes", "1", "on"})
_FALSE: Final = frozenset({"false", "no", "0", "off"})
_LIST: Final = ((list, str), "a list")
_MAPPING: Final = ((dict,), "a mapping")
_OWN_TYPES: Final[Mapping[str, tuple[tuple[type, ...], str]]] = {
    "always": ((bool,), "true or false"),
    "os": _LIST,
    "requires": _MAPPING,
    "install": ((list,), "a list"),
    "invocation": _MAPPING,
    "skillKey": ((str,), "text"),
    "primaryEnv": ((str,), "text"),
}
_REQUIRES_TYPES: Final = dict.fromkeys(("bins", "anyBins", "env", "config"), _LIST)
_TOOL: Final = re.compile(r"[^\s,(]+(?:\([^)]*\))?")


class SkillTier(Enum):
    """Where a skill comes from. Of skills with the same name, that of the later tier is used."""

    EXTRA = "extra"
    BUNDLED = "bundled"
    PLUGIN = "plugin"
    MANAGED = "managed"
    PERSONAL = "personal"
    PROJECT = "project"
    WORKSPACE = "workspace"

    @property
    def source(self) -> str:
        """The tier's name in OpenClaw's protocol, which has plugins among the extra folders."""
        return _SOURCES[self]


_SOURCES: Final[Mapping[SkillTier, str]] = {
    SkillTier.EXTRA: "openclaw-extra",
    SkillTier.BUNDLED: "openclaw-bundled",
    SkillTier.PLUGIN: "openclaw-extra",
    SkillTier.MANAGED: "openclaw-managed",
    SkillTier.PERSONAL: "agents-skills-personal",
    SkillTier.PROJECT: "agents-skills-project",
    SkillTier.WORKSPACE: "openclaw-workspace",
}


@dataclass(frozen=True, slots=True)
class Invocation:
    """Who may invoke a skill: users by a chat command, the model on its own.

    `allows_remote` is false for a skill that is for the owner's own conversations alone.
    """

    by_user: bool = True
    by_model: bool = True
    allows_remote: bool = True


@dataclass(frozen=True, slots=True)
class CommandDispatch:
    """A chat command of a skill that calls a tool with the words after it, without the model."""

    tool: str
    arg_mode: Literal["raw"] = "raw"


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
    sha256: str = ""  # our own: what a download must be


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


NO_METADATA: Final = Metadata()


@dataclass(frozen=True, slots=True)
class Skill:
    """A folder with a SKILL.md, as its frontmatter describes it.

    `key` names its settings in `skills.entries`. `own` is the `openclaw` part of its metadata as it
    is written, for readers of further keys. `allowed_tools` is what the author says the skill
    needs; it grants nothing and restricts nothing.
    """

    name: str
    description: str
    key: str
    tier: SkillTier
    folder: Path
    file: Path
    stamp: FileStamp | None = field(default=None, repr=False)
    invocation: Invocation = Invocation()
    dispatch: CommandDispatch | None = None
    metadata: Metadata = NO_METADATA
    homepage: str = ""
    license: str = ""
    compatibility: str = ""
    allowed_tools: tuple[str, ...] = ()
    own: Mapping[str, Json] = field(default_factory=dict, repr=False)
    frontmatter: Mapping[str, Json] = field(default_factory=dict, repr=False)

    @property
    def requires(self) -> Requires:
        return self.metadata.requires or Requires()


def make_skill(
    frontmatter: Mapping[str, Json], tier: SkillTier, file: Path, stamp: FileStamp | None = None
) -> Skill:
    """Make the skill of a SKILL.md. Raises FrontmatterError when it cannot be offered."""
    folder = file.parent
    name = _line(frontmatter, "name") or folder.name
    description = _line(frontmatter, "description")
    if not description:
        raise FrontmatterError("it has no description")
    if (
        len(name) > MAX_NAME_CHARS
        or not name.isprintable()
        or any(mark in name for mark in "<>/\\")
    ):
        raise FrontmatterError(
            f"its name {one_line(name, 40)!r} is not one of 1 to {MAX_NAME_CHARS} characters "
            "without < > / \\"
        )
    own = read_own_metadata(frontmatter) or {}
    _check_types(frontmatter, own)
    metadata = _parse_metadata(own)
    return Skill(
        name=name,
        description=description,
        key=metadata.skill_key or name,
        tier=tier,
        folder=folder,
        file=file,
        stamp=stamp,
        invocation=read_invocation(frontmatter),
        dispatch=read_dispatch(frontmatter),
        metadata=metadata,
        homepage=metadata.homepage or _homepage(frontmatter),
        license=_line(frontmatter, "license"),
        compatibility=_line(frontmatter, "compatibility"),
        allowed_tools=_read_tools(frontmatter),
        own=own,
        frontmatter=frontmatter,
    )


def _check_types(frontmatter: Mapping[str, Json], own: Mapping[str, Json]) -> None:
    """Raise FrontmatterError for a value that would restrict the skill and cannot be read."""
    text = frontmatter.get("metadata")
    if not own and isinstance(text, str) and text.lstrip().startswith("{"):
        if not _is_json5(text):
            raise FrontmatterError("its metadata is not JSON")
    elif isinstance(text, list):
        raise FrontmatterError("its metadata is not a mapping")
    for key in ("user-invocable", "disable-model-invocation"):
        if isinstance(frontmatter.get(key), list | dict):
            raise FrontmatterError(f"its {key} is not true or false")
    for table, types in ((own, _OWN_TYPES), (_table(own, "requires") or {}, _REQUIRES_TYPES)):
        for key, (expected, kind) in types.items():
            if table.get(key) is not None and not isinstance(table[key], expected):
                raise FrontmatterError(f"its {key} is not {kind}")


def read_invocation(frontmatter: Mapping[str, Json]) -> Invocation:
    """Return who may invoke the skill; both by default.

    The keys of the top level are OpenClaw's; `invocation` in its part of the metadata, or at the
    top level, may restrict further.
    """
    nested = _table(frontmatter, "invocation")
    if nested is None:
        nested = _table(read_own_metadata(frontmatter) or {}, "invocation") or {}
    hidden = _flag(frontmatter.get("disable-model-invocation"), default=False)
    return Invocation(
        by_user=_flag(frontmatter.get("user-invocable"), default=True),
        by_model=not (hidden or _flag(nested.get("disableModelInvocation"), default=False)),
        allows_remote=_flag(nested.get("allowRemote"), default=True),
    )


def read_dispatch(frontmatter: Mapping[str, Json]) -> CommandDispatch | None:
    """Return which tool the skill's command calls; None when the model gets the command."""
    names = ("command-dispatch", "command_dispatch"), ("command-tool", "command_tool")
    kind, tool = (next((t for key in keys if (t := _line(frontmatter, key))), "") for keys in names)
    if kind.lower() != "tool" or not tool:
        return None
    return CommandDispatch(tool)  # any other argument mode is read as `raw`, as OpenClaw does


def read_own_metadata(frontmatter: Mapping[str, Json]) -> Mapping[str, Json] | None:
    """Return the part of `metadata` that is for this program; None if there is none.

    `metadata` is a mapping, or text with JSON5 in it.
    """
    tree = frontmatter.get("metadata")
    if isinstance(tree, str):
        try:
            tree = json5_document.to_plain(json5_document.parse_json5(tree or "null"))
        except ConfigError:
            return None
    found = (_table(tree, name) for name in _OWN_NAMES)
    return next((table for table in found if table is not None), None)


def read_metadata(frontmatter: Mapping[str, Json]) -> Metadata | None:
    """Return the skill's metadata; None if it has none or it is invalid."""
    own = read_own_metadata(frontmatter)
    return None if own is None else _parse_metadata(own)


def _parse_metadata(own: Mapping[str, Json]) -> Metadata:
    if not own:
        return NO_METADATA
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


def _is_json5(text: str) -> bool:
    try:
        json5_document.parse_json5(text)
    except ConfigError:
        return False
    return True


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
        sha256=_text(entry, "sha256"),
    )


def _line(frontmatter: Mapping[str, Json], key: str) -> str:
    """Return a value as one line. Raises FrontmatterError for a list or a mapping."""
    value = frontmatter.get(key)
    if value is None:
        return ""
    if isinstance(value, list | dict):
        raise FrontmatterError(f"its {key} is not text")
    return " ".join(format_value(value).split())


def _homepage(frontmatter: Mapping[str, Json]) -> str:
    keys = ("homepage", "website", "url")
    return next((found for key in keys if (found := _line(frontmatter, key))), "")


def _read_tools(frontmatter: Mapping[str, Json]) -> tuple[str, ...]:
    """Return `allowed-tools`: a list, or text with spaces or commas outside of parentheses."""
    value = frontmatter.get("allowed-tools")
    if isinstance(value, list):
        return tuple(item.strip() for item in value if isinstance(item, str) and item.strip())
    return tuple(_TOOL.findall(value)) if isinstance(value, str) else ()


def _flag(value: Json, *, default: bool) -> bool:
    word = "" if value is None or isinstance(value, list | dict) else format_value(value)
    word = word.strip().lower()
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
