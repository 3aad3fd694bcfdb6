"""The sizes of a system prompt: per section, file, skill and tool.

    report = composer.report(context)        # of the prompt that was composed last
    report = read_report(session.record.data.get("systemPromptReport"))   # of a stored session
    format_report(report)                    # as text

A session's entry keeps OpenClaw's `systemPromptReport`; clients get the sections as well.
"""

from collections.abc import Iterable, Mapping
from dataclasses import field, replace

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.core.text import one_line

CHARS_PER_TOKEN = 4
_MAX_NAME_CHARS = 40


@dataclass(frozen=True, slots=True)
class SectionShare:
    """One section of the prompt."""

    name: str
    chars: int


@dataclass(frozen=True, slots=True)
class FileShare:
    """One workspace file: its length, and how much of it is in the prompt."""

    name: str
    path: str
    missing: bool = False
    raw_chars: int = 0
    injected_chars: int = 0
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class SkillShare:
    """One skill in the prompt's list."""

    name: str
    chars: int


@dataclass(frozen=True, slots=True)
class ToolShare:
    """One tool: its description, and its schema, which is sent next to the prompt."""

    name: str
    summary_chars: int
    schema_chars: int
    properties: int


@dataclass(frozen=True, slots=True)
class ReportContext:
    """The session, model and time of a prompt."""

    session_key: str
    session_id: str = ""
    provider: str = ""
    model: str = ""
    at_ms: int = 0
    source: str = "run"  # or "estimate", when no run made it

    def entry(self) -> dict[str, Json]:
        """Return what the report of a session's entry says of its session, model and time."""
        return {
            "source": self.source,
            "generatedAt": self.at_ms,
            "sessionId": self.session_id,
            "sessionKey": self.session_key,
            "provider": self.provider,
            "model": self.model,
        }


@dataclass(frozen=True, slots=True)
class PromptReport:
    """The sizes of one prompt."""

    context: ReportContext
    mode: str
    profile: str
    workspace: str
    max_chars: int
    total_chars: int
    chars: int
    sandboxed: bool = False
    list_chars: int = 0  # the tools as the prompt lists them
    sections: tuple[SectionShare, ...] = field(default=())
    files: tuple[FileShare, ...] = field(default=())
    skills: tuple[SkillShare, ...] = field(default=())
    tools: tuple[ToolShare, ...] = field(default=())

    @property
    def project_chars(self) -> int:
        """The workspace files, with their headings."""
        return sum(part.chars for part in self.sections if part.name == "Project Context")

    @property
    def skills_chars(self) -> int:
        return sum(skill.chars for skill in self.skills)

    @property
    def schema_chars(self) -> int:
        return sum(tool.schema_chars for tool in self.tools)

    def to_json(self) -> dict[str, Json]:
        """Return the report for clients: the session entry's keys, and ours."""
        return {
            **self.entry(),
            "mode": self.mode,
            "profile": self.profile,
            "sections": [{"name": part.name, "chars": part.chars} for part in self.sections],
        }

    def without_host_paths(self) -> "PromptReport":
        """Return the report for people other than the owner: files by name, no workspace path."""
        files = tuple(replace(file, path=file.name) for file in self.files)
        return replace(self, workspace="", files=files)

    def entry(self) -> dict[str, Json]:
        """Return the report for the session's entry: OpenClaw's keys only."""
        return {**self.context.entry(), **self.sizes()}

    def sizes(self) -> dict[str, Json]:
        """Return what the entry says of the prompt, in whatever session it is used."""
        return {
            "workspaceDir": self.workspace,
            "bootstrapMaxChars": self.max_chars,
            "bootstrapTotalMaxChars": self.total_chars,
            "sandbox": {"mode": "all" if self.sandboxed else "off", "sandboxed": self.sandboxed},
            "systemPrompt": {
                "chars": self.chars,
                "projectContextChars": self.project_chars,
                "nonProjectContextChars": self.chars - self.project_chars,
            },
            "injectedWorkspaceFiles": [_file_json(file) for file in self.files],
            "skills": {
                "promptChars": self.skills_chars,
                "entries": [{"name": one.name, "blockChars": one.chars} for one in self.skills],
            },
            "tools": {
                "listChars": self.list_chars,
                "schemaChars": self.schema_chars,
                "entries": [_tool_json(tool) for tool in self.tools],
            },
        }


def equals_ignoring_time(entry: Mapping[str, Json], stored: Json) -> bool:
    """Return whether the report of a session's entry equals a stored one, apart from its time."""
    if not isinstance(stored, Mapping):
        return False
    return {**entry, "generatedAt": 0} == {**stored, "generatedAt": 0}


def _file_json(file: FileShare) -> dict[str, Json]:
    return {
        "name": file.name,
        "path": file.path,
        "missing": file.missing,
        "rawChars": file.raw_chars,
        "injectedChars": file.injected_chars,
        "truncated": file.truncated,
    }


def _tool_json(tool: ToolShare) -> dict[str, Json]:
    return {
        "name": tool.name,
        "summaryChars": tool.summary_chars,
        "schemaChars": tool.schema_chars,
        "propertiesCount": tool.properties,
    }


# --- reading it back ---------------------------------------------------------------------------


def read_report(stored: Json) -> PromptReport | None:
    """Parse a stored report, ours or OpenClaw's; None when there is none."""
    if not isinstance(stored, Mapping) or "systemPrompt" not in stored:
        return None
    sizes, skills, tools = (_table(stored, name) for name in ("systemPrompt", "skills", "tools"))
    return PromptReport(
        context=ReportContext(
            _text(stored, "sessionKey"),
            _text(stored, "sessionId"),
            _text(stored, "provider"),
            _text(stored, "model"),
            _number(stored, "generatedAt"),
            _text(stored, "source") or "run",
        ),
        mode=_text(stored, "mode") or "full",
        profile=_text(stored, "profile") or "full",
        workspace=_text(stored, "workspaceDir"),
        max_chars=_number(stored, "bootstrapMaxChars"),
        total_chars=_number(stored, "bootstrapTotalMaxChars"),
        chars=_number(sizes, "chars"),
        sandboxed=_table(stored, "sandbox").get("sandboxed") is True,
        list_chars=_number(tools, "listChars"),
        sections=tuple(_sections(stored, sizes)),
        files=tuple(map(_file, _rows(stored, "injectedWorkspaceFiles"))),
        skills=tuple(
            SkillShare(_text(row, "name"), _number(row, "blockChars"))
            for row in _rows(skills, "entries")
        ),
        tools=tuple(map(_tool, _rows(tools, "entries"))),
    )


def _sections(stored: Mapping[str, Json], sizes: Mapping[str, Json]) -> Iterable[SectionShare]:
    rows = _rows(stored, "sections")
    if rows:
        return (SectionShare(_text(row, "name"), _number(row, "chars")) for row in rows)
    named = {"Project Context": "projectContextChars", "Everything else": "nonProjectContextChars"}
    return (SectionShare(name, _number(sizes, key)) for name, key in named.items())


def _file(row: Mapping[str, Json]) -> FileShare:
    return FileShare(
        _text(row, "name"),
        _text(row, "path"),
        missing=row.get("missing") is True,
        raw_chars=_number(row, "rawChars"),
        injected_chars=_number(row, "injectedChars"),
        truncated=row.get("truncated") is True,
    )


def _tool(row: Mapping[str, Json]) -> ToolShare:
    return ToolShare(
        _text(row, "name"),
        _number(row, "summaryChars"),
        _number(row, "schemaChars"),
        _number(row, "propertiesCount"),
    )


def _table(tree: Mapping[str, Json], key: str) -> Mapping[str, Json]:
    value = tree.get(key)
    return value if isinstance(value, Mapping) else {}


def _rows(tree: Mapping[str, Json], key: str) -> list[Mapping[str, Json]]:
    value = tree.get(key)
    return [row for row in value if isinstance(row, Mapping)] if isinstance(value, list) else []


def _text(tree: Mapping[str, Json], key: str) -> str:
    value = tree.get(key)
    return value if isinstance(value, str) else ""


def _number(tree: Mapping[str, Json], key: str) -> int:
    value = tree.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


# --- as text -----------------------------------------------------------------------------------


def format_report(report: PromptReport, *, detail: bool = False) -> str:
    """Format the report as text; `detail` lists every section, skill and tool."""
    about = report.context
    model = "/".join(part for part in (about.provider, about.model) if part) or "no model yet"
    lines = [
        f"System prompt: {_size(report.chars)} ({report.mode}, {report.profile}; {model})",
        f"Tool schemas: {_size(report.schema_chars)}, {len(report.tools)} tools",
    ]
    if report.skills:
        lines.append(f"Skills: {_size(report.skills_chars)}, {len(report.skills)} listed")
    lines += ["", "Workspace files:", *map(_file_line, report.files)]
    if detail:
        lines += ["", "Sections:", *_table_of((s.name, s.chars) for s in report.sections)]
        if report.skills:
            lines += ["", "Skills:", *_table_of((s.name, s.chars) for s in report.skills)]
        tools = ((t.name, t.summary_chars + t.schema_chars) for t in report.tools)
        lines += ["", "Tools, manual and schema:", *_table_of(tools)]
    return "\n".join(lines)


def _file_line(file: FileShare) -> str:
    name = one_line(file.name, _MAX_NAME_CHARS)
    if file.missing:
        return f"  {name}: missing"
    cut = f" of {file.raw_chars:,}, cut" if file.truncated else ""
    return f"  {name}: {file.injected_chars:,} characters{cut}"


def _table_of(rows: Iterable[tuple[str, int]]) -> list[str]:
    largest = sorted(rows, key=lambda row: -row[1])
    return [f"  {one_line(name, _MAX_NAME_CHARS)}: {_size(chars)}" for name, chars in largest]


def _size(chars: int) -> str:
    return f"{chars:,} characters, about {-(-chars // CHARS_PER_TOKEN):,} tokens"
