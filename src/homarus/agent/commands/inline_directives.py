"""Extract inline directives from a message. Pure.

A message of directives alone is a list of commands. Next to other text they are run options of
this one message; a word that is no level then stays in the text.
"""

from dataclasses import field, replace
from typing import Final, TypeAlias, TypeVar

from homarus.agent.commands.catalog import ParsedCommand, is_command_name
from homarus.config.model_refs import aliases
from homarus.config.schema import Config
from homarus.core.errors import UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Inbound, RunOptions
from homarus.core.session_keys import agent_id_of
from homarus.core.text import one_line
from homarus.policy.sandbox_settings import is_sandboxed
from homarus.providers.model_router import ModelRouter
from homarus.sessions import queue_policy
from homarus.sessions.directives import (
    Directives,
    DirectiveValue,
    ExecDirective,
    QueueDirective,
    parse_directives,
)
from homarus.sessions.session_settings import CHOICES, check_exec_setting

# Inside other text, these are taken out of it and hold for that message alone.
DIRECTIVES: Final = frozenset(
    {"think", "verbose", "reasoning", "elevated", "exec", "model", "queue"}
)

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
    inbound: Inbound,
    parsed: ParsedCommand | None,
    config: Config,
    models: ModelRouter,
    session_key: str,
) -> ParsedDirectives:
    """Extract the directives of a message; `parsed` is the command that the complete message is.

    Raises UserError for an unknown model, which another one would answer otherwise, and for a
    setting of commands that cannot be obeyed.
    """
    text = inbound.text.strip()
    if "/" not in text:
        return ParsedDirectives(text, options=inbound.options)
    name = parsed.command.name if parsed else ""
    is_owner = inbound.authority == "owner"
    if parsed and name in {"elevated", "exec"} and not is_owner:
        return ParsedDirectives("", ((name, parsed.args),))  # to be refused
    found = parse_directives(
        text,
        is_command=is_command_name,
        model_aliases=aliases(config),
        allow_elevated=is_owner,
        allow_exec=is_owner,
    )
    if not found.text and not inbound.images:
        return ParsedDirectives("", _commands(found))
    if parsed and name == "exec" and found.exec == ExecDirective():
        return ParsedDirectives("", ((name, parsed.args),))  # a mistyped option is no message
    if parsed and name == "queue" and found.queue == QueueDirective():
        return ParsedDirectives("", ((name, parsed.args),))  # a mistyped mode is no message
    return ParsedDirectives(
        found.text,
        options=_run_options(inbound.options, found, models, config, session_key),
        queue=queue_policy.check_queue_directive(found.queue) if found.queue else None,
        shows_status=found.status,
    )


def _run_options(
    requested: RunOptions,
    found: Directives,
    models: ModelRouter,
    config: Config,
    session_key: str,
) -> RunOptions:
    """Return the run options of a message."""
    model = requested.model
    if found.model and found.model.profile:
        fix = f"send /model {found.model.name}@{found.model.profile} alone"
        raise UserError("a credential is chosen for the whole conversation", fix=fix)
    if found.model and found.model.name:
        model = models.check_typed(found.model.name).ref
    commands = exec_fields(found.exec, config, session_key) if found.exec else {}
    if found.elevated and found.elevated.value is None and found.elevated.raw:
        raise UserError(
            f"/elevated does not understand {one_line(found.elevated.raw, 40)!r}",
            fix="use off, on, ask or full",
        )
    return replace(
        requested,
        model=model,
        thinking=_value(found.think) or requested.thinking,
        verbose=_value(found.verbose) or requested.verbose,
        reasoning=_value(found.reasoning) or requested.reasoning,
        exec_host=commands.get("execHost", requested.exec_host),
        exec_security=commands.get("execSecurity", requested.exec_security),
        exec_ask=commands.get("execAsk", requested.exec_ask),
        elevated=_value(found.elevated) or requested.elevated,
    )


def exec_fields(setting: ExecDirective, config: Config, session_key: str) -> dict[str, str]:
    """Return the fields of a session's entry for `/exec`. Raises UserError for any other word."""
    given = {
        "execHost": setting.host,
        "execSecurity": setting.security,
        "execAsk": setting.ask,
        "execNode": setting.node,
    }
    fields = dict[str, str]()
    for name, one in given.items():
        if one is None:
            continue
        if one.value is None:
            option = name.removeprefix("exec").lower()
            words = ", ".join(CHOICES.get(name, ()))
            raise UserError(
                f"/exec does not understand {option}={one_line(one.raw, 40)}",
                fix=f"{option} is one of {words}" if words else "",
            )
        has_sandbox = is_sandboxed(config, agent_id_of(session_key), session_key)
        check_exec_setting(name, one.value, is_sandboxed=has_sandbox)
        fields[name] = one.value
    return fields


def _value(setting: DirectiveValue[_L] | None) -> str | None:
    return setting.value if setting else None


def _commands(found: Directives) -> tuple[GivenCommand, ...]:
    """Return directives without other text as the commands they are."""
    levels = (found.think, found.verbose, found.reasoning, found.elevated)
    names = ("think", "verbose", "reasoning", "elevated")
    commands = [(name, one.raw) for name, one in zip(names, levels, strict=True) if one]
    if found.exec:
        commands.append(("exec", _exec_args(found.exec)))
    if found.model:
        profile = f"@{found.model.profile}" if found.model.profile else ""
        commands.append(("model", found.model.name + profile))
    if found.queue:
        commands.append(("queue", _queue_args(found.queue)))
    return (*commands, *([("status", "")] if found.status else []))


def _exec_args(setting: ExecDirective) -> str:
    given = {
        "host": setting.host,
        "security": setting.security,
        "ask": setting.ask,
        "node": setting.node,
    }
    return " ".join(f"{name}={one.raw}" for name, one in given.items() if one)


def _queue_args(setting: QueueDirective) -> str:
    options = {"debounce": setting.debounce_ms, "cap": setting.cap, "drop": setting.drop}
    words = [setting.mode.raw] if setting.mode else []
    words += [f"{name}:{option.raw}" for name, option in options.items() if option]
    return " ".join([*words, *(["reset"] if setting.reset else [])])
