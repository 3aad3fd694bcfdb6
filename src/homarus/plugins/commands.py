"""Define chat commands: the decorator, what a command is given, and what it returns.

    @command("whoami")
    async def whoami(context: CommandContext) -> CommandReply:
        return CommandReply(f"You are {context.inbound.sender}.")

A command may change its session's entry: it names the fields in its reply, and they are saved in
one transaction with the reply and the outcome of the message. Everything else a command does must
be safe to repeat, because after a crash in between it is executed again, unless it `runs_once`.

Name, help and arguments of a command are a row of `agent/commands/catalog.py`.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from typing import Any, TypeAlias, TypeVar

from homarus.config.schema import Config
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Inbound, Json
from homarus.plugins.values import HookContext


async def _stop_no_children(_key: str) -> int:
    return 0


@dataclass(frozen=True, slots=True)
class CommandPorts:
    """What a command may do outside of its own code, as functions.

    `stop_runs` returns the ids of the runs it stopped. `call_hooks` returns the lines that plugins
    add to the reply. `get_restart` returns None where no gateway process can be restarted.
    `stop_children` stops the sub-agents of a session, and returns how many.
    """

    load_entry: Callable[[str], Awaitable[Mapping[str, Json]]]
    stop_runs: Callable[[str], Awaitable[tuple[str, ...]]]
    call_hooks: Callable[[HookContext, str, str], Awaitable[tuple[str, ...]]]
    get_restart: Callable[[], Callable[[], None] | None]
    stop_children: Callable[[str], Awaitable[int]] = _stop_no_children


@dataclass(frozen=True, slots=True)
class CommandContext:
    """One command of one message: its session key, its sender's message and its arguments."""

    ports: CommandPorts
    config: Config
    where: HookContext
    key: str
    inbound: Inbound
    args: str

    @property
    def single_arg(self) -> str:
        """The arguments in lower case, for a command that takes one word."""
        return self.args.strip().lower()

    @property
    def is_owner(self) -> bool:
        return self.inbound.authority == "owner"

    async def entry(self) -> Mapping[str, Json]:
        """Return the stored entry of the session."""
        return await self.ports.load_entry(self.key)


@dataclass(frozen=True, slots=True)
class CommandReply:
    """What a command answers.

    `fields` are set in the session's entry (None removes one); `on_saved` is called once the reply
    is saved.
    """

    text: str
    fields: Mapping[str, Json] = field(default_factory=dict)
    on_saved: Callable[[], None] | None = None


ContextT = TypeVar("ContextT", bound=CommandContext)
CommandHandler: TypeAlias = Callable[[ContextT], Awaitable[CommandReply]]


@dataclass(frozen=True, slots=True)
class ChatCommand:
    """A function that answers the command `name`.

    One that `runs_once` is not executed again after a crash: the sender is told instead.
    """

    name: str
    handler: Callable[[Any], Awaitable[CommandReply]]
    runs_once: bool = False

    async def __call__(self, context: CommandContext) -> CommandReply:
        return await self.handler(context)


def command(
    name: str, *, runs_once: bool = False
) -> Callable[[CommandHandler[ContextT]], ChatCommand]:
    """Turn `async def f(context) -> CommandReply` into the command `/name`."""

    def wrap(handler: CommandHandler[ContextT]) -> ChatCommand:
        return ChatCommand(name, handler, runs_once)

    return wrap


def find_commands(*modules: object) -> dict[str, ChatCommand]:
    """Return every command at the top level of these modules, by name."""
    found = (each for module in modules for each in vars(module).values())
    return {each.name: each for each in found if isinstance(each, ChatCommand)}
