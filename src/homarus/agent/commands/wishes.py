"""Inline directives: what a message asks for beside its words, taken out of them. Pure.

A message that is nothing but directives is read as commands. With other words beside them they
are wishes about this one answer; a word that means nothing is then left in the sentence.
"""

from dataclasses import field
from typing import Final, TypeAlias, TypeVar

from homarus.config.refs import aliases
from homarus.config.schema import Config
from homarus.core.errors import UserError
from homarus.core.message import Inbound, Wishes
from homarus.core.value import dataclass
from homarus.providers.models import Models
from homarus.sessions import queue
from homarus.sessions.commands import Spoken
from homarus.sessions.directives import Directives, QueueSetting, Setting, parse_directives

# Said inside a sentence, these are taken out of it and hold for it.
DIRECTIVES: Final = frozenset({"think", "verbose", "reasoning", "elevated", "model", "queue"})

Given: TypeAlias = tuple[str, str]  # the name of a command, and its arguments
_L = TypeVar("_L", bound=str)


@dataclass(frozen=True, slots=True)
class Reading:
    """A message taken apart: the words that are left, and what was asked for beside them."""

    text: str
    given: tuple[Given, ...] = ()
    wishes: Wishes = field(default_factory=Wishes)
    queue: QueueSetting | None = None
    shows_status: bool = False


def read(inbound: Inbound, spoken: Spoken | None, config: Config, models: Models) -> Reading:
    """Take the directives out of a message; `spoken` is the command it is as a whole.

    UserError when it wants a model nobody knows: it would be answered by another.
    """
    text = inbound.text.strip()
    if "/" not in text:
        return Reading(text, wishes=inbound.wishes)
    name = spoken.command.name if spoken else ""
    is_owner = inbound.authority == "owner"
    if spoken and name == "elevated" and not is_owner:
        return Reading("", ((name, spoken.args),))  # to be refused
    found = parse_directives(
        text, model_aliases=aliases(config), allow_elevated=is_owner, allow_exec=False
    )
    if not found.text and not inbound.images:
        return Reading("", _given(found))
    if spoken and name == "queue" and found.queue == QueueSetting():
        return Reading("", ((name, spoken.args),))  # a mistyped mode is no message
    return Reading(
        found.text,
        wishes=_wishes(inbound.wishes, found, models),
        queue=queue.check(found.queue) if found.queue else None,
        shows_status=found.status,
    )


def _wishes(asked: Wishes, found: Directives, models: Models) -> Wishes:
    """What a message wants of its own answer."""
    model = asked.model
    if found.model and found.model.profile:
        fix = f"send /model {found.model.name}@{found.model.profile} alone"
        raise UserError("a credential is chosen for the whole conversation", fix=fix)
    if found.model and found.model.name:
        model = models.check(found.model.name).ref
    return Wishes(
        model=model,
        thinking=_value(found.think) or asked.thinking,
        timeout_s=asked.timeout_s,
        verbose=_value(found.verbose) or asked.verbose,
        reasoning=_value(found.reasoning) or asked.reasoning,
    )


def _value(setting: Setting[_L] | None) -> str | None:
    return setting.value if setting else None


def _given(found: Directives) -> tuple[Given, ...]:
    """Directives that are all there is, as the commands they are."""
    levels = (found.think, found.verbose, found.reasoning, found.elevated)
    names = ("think", "verbose", "reasoning", "elevated")
    given = [(name, one.raw) for name, one in zip(names, levels, strict=True) if one]
    if found.model:
        profile = f"@{found.model.profile}" if found.model.profile else ""
        given.append(("model", found.model.name + profile))
    if found.queue:
        given.append(("queue", _queue_args(found.queue)))
    return (*given, *([("status", "")] if found.status else []))


def _queue_args(setting: QueueSetting) -> str:
    options = {"debounce": setting.debounce_ms, "cap": setting.cap, "drop": setting.drop}
    words = [setting.mode.raw] if setting.mode else []
    words += [f"{name}:{option.raw}" for name, option in options.items() if option]
    return " ".join([*words, *(["reset"] if setting.reset else [])])
