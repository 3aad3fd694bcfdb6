"""Assemble the system prompt: pure, and byte for byte the same from turn to turn.

    prompt = make_prompt(facts, profile_of(model.window, calls_tools=model.calls_tools))
    prompt.text                        # the system prompt
    make_report(prompt, context, …)    # its sizes

Models with a small window get a short prompt: less of the files, no list of tools; the embedded
one gets a few sentences and no tools.
"""

import json
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from homarus.agent.prompt.facts import PromptFacts, PromptMode
from homarus.agent.prompt.injection import InjectedFile, SessionKind, session_kind
from homarus.agent.prompt.report import (
    FileShare,
    PromptReport,
    ReportContext,
    SectionShare,
    SkillShare,
    ToolShare,
)
from homarus.agent.prompt.sections import SECTIONS, SectionSpec, sort_tools
from homarus.core.fast_dataclass import dataclass
from homarus.providers.base import ToolSpec
from homarus.providers.catalog import ModelInfo
from homarus.tools.registry import ToolRegistry

Profile: TypeAlias = Literal["full", "small", "embedded"]

# A model with a smaller context window, in tokens, gets the small prompt.
SMALL_WINDOW: Final = 16_000
# Characters per token of a small window: for the files, and for the tools with their schemas. Each
# tool has a line in the prompt, too.
_FILES_SHARE, _TOOLS_SHARE = 0.3, 0.7
_ONE_FILE = 3  # in a small prompt no file gets more than a third


@dataclass(frozen=True, slots=True)
class PromptSection:
    """One section of a prompt."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """A system prompt, and the facts and sections it is made of."""

    facts: PromptFacts
    profile: Profile
    sections: tuple[PromptSection, ...]
    text: str


def mode_for(kind: SessionKind) -> PromptMode:
    """Return the prompt mode: minimal for sub-agents, cron jobs and hooks."""
    return "minimal" if kind in {"subagent", "cron", "hook"} else "full"


def profile_of(window: int, *, calls_tools: bool) -> Profile:
    """Return the prompt profile by the model's context window."""
    if window >= SMALL_WINDOW:
        return "full"
    return "small" if calls_tools else "embedded"


def lists_skills(key: str, model: ModelInfo, tools: ToolRegistry) -> bool:
    """Return whether the prompt of a session has a list of skills: the model must read them."""
    is_full = profile_of(model.window, calls_tools=model.calls_tools) == "full"
    can_read = model.calls_tools and "read" in tools
    return is_full and can_read and mode_for(session_kind(key)) == "full"


def make_prompt(facts: PromptFacts, profile: Profile = "full") -> Prompt:
    """Return the system prompt."""
    if profile == "embedded":
        all_sections = [PromptSection("Identity", _embedded(facts))]
    else:
        all_sections = [
            PromptSection(k.name, k.write(facts)) for k in _select_sections(facts.mode, profile)
        ]
    sections = tuple(section for section in all_sections if section.text)
    return Prompt(facts, profile, sections, "\n\n".join(part.text for part in sections))


def _select_sections(mode: PromptMode, profile: Profile) -> Sequence[SectionSpec]:
    if mode == "none":
        return SECTIONS[:1]
    return [
        spec
        for spec in SECTIONS
        if (mode == "full" or spec.minimal) and (profile == "full" or spec.small)
    ]


def _embedded(facts: PromptFacts) -> str:
    return (
        f"You are {facts.name}, a small demo assistant that runs on the user's own machine. "
        "Answer in one to three short, friendly sentences. "
        "If you are not sure, say so. You cannot open files or web pages."
    ) + (f"\n\n{facts.extra.strip()}" if facts.extra.strip() else "")


# --- what fits ---------------------------------------------------------------------------------


def file_char_limits(
    profile: Profile, max_chars: int, total_chars: int, window: int
) -> tuple[int, int]:
    """Return the character limits for one workspace file and for all of them."""
    if profile == "embedded":
        return 0, 0
    if profile == "small":
        total = min(total_chars, int(window * _FILES_SHARE))
        return min(max_chars, total // _ONE_FILE), total
    total = min(total_chars, window)  # at four characters to the token, a quarter of the window
    return min(max_chars, total), total


def fitting_tools(tools: Sequence[ToolSpec], profile: Profile, window: int) -> tuple[ToolSpec, ...]:
    """Return all tools, or for a small window those that fit it, in order of preference."""
    if profile == "full":
        return tuple(tools)
    if profile == "embedded":
        return ()
    left = int(window * _TOOLS_SHARE)
    names: set[str] = set()
    for spec in sort_tools(tools):
        size = len(spec.name) + len(spec.description) + schema_chars(spec)
        if size <= left:
            names.add(spec.name)
            left -= size
    return tuple(spec for spec in tools if spec.name in names)


def schema_chars(spec: ToolSpec) -> int:
    """Return the length of a tool's schema as JSON."""
    return len(json.dumps(spec.parameters, ensure_ascii=False, separators=(",", ":")))


# --- its figures -------------------------------------------------------------------------------


def make_report(
    prompt: Prompt, context: ReportContext, max_chars: int, total_chars: int
) -> PromptReport:
    """Return the sizes of a prompt; the limits are those of the workspace files."""
    facts = prompt.facts
    sections = tuple(SectionShare(part.name, len(part.text)) for part in prompt.sections)
    shown = {part.name for part in sections}
    listed = next((part.chars for part in sections if part.name == "Tooling"), 0)
    return PromptReport(
        context=context,
        mode=facts.mode,
        profile=prompt.profile,
        workspace=facts.workspace,
        max_chars=max_chars,
        total_chars=total_chars,
        chars=len(prompt.text),
        sandboxed=facts.sandbox is not None,
        list_chars=listed,
        sections=sections,
        files=tuple(map(_file_share, facts.files)) if "Project Context" in shown else (),
        skills=tuple(
            SkillShare(block.name, len(block.text)) for block in facts.skills if block.name
        )
        if "Skills" in shown
        else (),
        tools=tuple(map(_tool_share, facts.tools)),
    )


def _file_share(file: InjectedFile) -> FileShare:
    return FileShare(
        file.name,
        file.path,
        missing=file.missing,
        raw_chars=file.raw_chars,
        injected_chars=len(file.text),
        truncated=file.truncated,
    )


def _tool_share(spec: ToolSpec) -> ToolShare:
    properties = spec.parameters.get("properties")
    count = len(properties) if isinstance(properties, dict) else 0
    return ToolShare(spec.name, len(spec.description), schema_chars(spec), count)
