"""Extract inline directives from a message. Pure.

A message of directives alone is a list of commands. Next to other text they are run options of
this one message; a word that is no level then stays in the text.
"""

from dataclasses import field
from typing import Final, TypeAlias, TypeVar

from homarus.agent.commands.catalog import ParsedCommand, is_command_name
from homarus.config.model_refs import aliases
from homarus.config.schema import Config
from homarus.core.errors import UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Inbound, RunOptions
from homarus.providers.model_router import ModelRouter
from homarus.sessions import queue_policy
from homarus.sessions.directives import Directives, DirectiveValue, QueueDirective, parse_directives

# Inside other text, these are taken out of it and hold for that message alone.
DIRECTIVES: Final = frozenset({"think", "verbose", "reasoning", "elevated", "model", "queue"})

GivenCommand: TypeAlias = tuple[str, str]  # name and arguments
_L = TypeVar("_L", bound=str)


@dataclass(frozen=True, slots=True)
class ParsedDirectives:
    """A message's text without its directives, and the directives."""

    text: str
    commands: tuple[GivenCommand, ...] = ()
    options: RunOptions = field(default_factory=RunOptions)
    queue: QueueDirective | None = None
    shows_status: bool = False


def extract_directives(
    inbound: Inbound, parsed: ParsedCommand | None, config: Config, models: ModelRouter
) -> ParsedDirectives:
    """Extract the directives of a message; `parsed` is the command that the complete message is.

    Raises UserError for an unknown model, which another one would answer otherwise.
    """
    text = inbound.text.strip()
    if "/" not in text:
        return ParsedDirectives(text, options=inbound.options)
    name = parsed.command.name if parsed else ""
    is_owner = inbound.authority == "owner"
    if parsed and name == "elevated" and not is_owner:
        return ParsedDirectives("", ((name, parsed.args),))  # to be refused
    found = parse_directives(
        text,
        is_command=is_command_name,
        model_aliases=aliases(config),
        allow_elevated=is_owner,
        allow_exec=False,
    )
    if not found.text and not inbound.images:
        return ParsedDirectives("", _commands(found))
    if parsed and name == "queue" and found.queue == QueueDirective():
        return ParsedDirectives("", ((name, parsed.args),))  # a mistyped mode is no message
    return ParsedDirectives(
        found.text,
        options=_run_options(inbound.options, found, models),
        queue=queue_policy.check_queue_directive(found.queue) if found.queue else None,
        shows_status=found.status,
    )


def _run_options(requested: RunOptions, found: Directives, models: ModelRouter) -> RunOptions:
    """Return the run options of a message."""
    model = requested.model
    if found.model and found.model.profile:
        fix = f"send /model {found.model.name}@{found.model.profile} alone"
        raise UserError("a credential is chosen for the whole conversation", fix=fix)
    if found.model and found.model.name:
        model = models.check_typed(found.model.name).ref
    return RunOptions(
        model=model,
        thinking=_value(found.think) or requested.thinking,
        timeout_s=requested.timeout_s,
        verbose=_value(found.verbose) or requested.verbose,
        reasoning=_value(found.reasoning) or requested.reasoning,
    )


def _value(setting: DirectiveValue[_L] | None) -> str | None:
    return setting.value if setting else None


def _commands(found: Directives) -> tuple[GivenCommand, ...]:
    """Return directives without other text as the commands they are."""
    levels = (found.think, found.verbose, found.reasoning, found.elevated)
    names = ("think", "verbose", "reasoning", "elevated")
    commands = [(name, one.raw) for name, one in zip(names, levels, strict=True) if one]
    if found.model:
        profile = f"@{found.model.profile}" if found.model.profile else ""
        commands.append(("model", found.model.name + profile))
    if found.queue:
        commands.append(("queue", _queue_args(found.queue)))
    return (*commands, *([("status", "")] if found.status else []))


def _queue_args(setting: QueueDirective) -> str:
    options = {"debounce": setting.debounce_ms, "cap": setting.cap, "drop": setting.drop}
    words = [setting.mode.raw] if setting.mode else []
    words += [f"{name}:{option.raw}" for name, option in options.items() if option]
    return " ".join([*words, *(["reset"] if setting.reset else [])])
