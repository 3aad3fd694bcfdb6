"""The catalogue of chat commands, and how a message is parsed as one.

The table is data, and names commands that have no function yet too: `plugins/commands.py` says
how a function becomes one.
"""

import re
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from homarus.core.fast_dataclass import dataclass
from homarus.sessions.reset import text_after_trigger

Category: TypeAlias = Literal[
    "session", "options", "status", "management", "media", "tools", "docks"
]
CommandScope: TypeAlias = Literal["text", "native", "both"]

RESETS: Final = frozenset({"new", "reset"})
ABORT_WORDS = frozenset({"stop", "esc", "abort", "wait", "exit", "interrupt"})

_DOCK_CHANNELS = ("telegram", "discord", "slack")
_TOKEN = re.compile(r"(?<!\S)[/!][a-zA-Z]")
_NAME = re.compile(r"[a-zA-Z][\w-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """Name, help and arguments of a command; without `args` it takes none."""

    name: str
    help: str
    category: Category
    args: str = ""
    aliases: tuple[str, ...] = ()
    scope: CommandScope = "both"
    owner_only: bool = False


@dataclass(frozen=True, slots=True)
class ParsedCommand:
    """A message that is a command, and its arguments."""

    command: CommandSpec
    args: str = ""


COMMANDS: tuple[CommandSpec, ...] = (
    CommandSpec("help", "The commands you will need first.", "status"),
    CommandSpec("commands", "Every command.", "status"),
    CommandSpec("status", "Model, context, queue and settings of this conversation.", "status"),
    CommandSpec("whoami", "How this channel names you.", "status", aliases=("id",)),
    CommandSpec("context", "What the model is given, counted.", "status", "[list|detail|json]"),
    CommandSpec(
        "export-session", "Write this conversation to a file.", "status", "[path]", ("export",)
    ),
    CommandSpec("skill", "Run a skill by name.", "tools", "<name> [input]"),
    CommandSpec(
        "tts",
        "Spoken replies.",
        "media",
        "on|off|status|provider|limit|summary|audio|help",
    ),
    CommandSpec(
        "allowlist",
        "Who may write here: show or change.",
        "management",
        "[list|add|remove] [entry]",
        scope="text",
        owner_only=True,
    ),
    CommandSpec(
        "approve",
        "Answer a waiting question about a command.",
        "management",
        "<id> allow-once|allow-always|deny",
    ),
    CommandSpec(
        "subagents",
        "Subagents of this conversation: see, message, stop or start them.",
        "management",
        "list|kill|log|info|send|steer|spawn [target] [value]",
    ),
    CommandSpec("kill", "Stop a subagent, or all.", "management", "<target|all>"),
    CommandSpec(
        "steer", "Tell a running subagent something.", "management", "<target> <message>", ("tell",)
    ),
    CommandSpec(
        "config",
        "Show or change the configuration.",
        "management",
        "show|get|set|unset path=value",
        owner_only=True,
    ),
    CommandSpec(
        "debug",
        "Settings that last until restart.",
        "management",
        "show|reset|set|unset path=value",
        owner_only=True,
    ),
    CommandSpec(
        "usage", "What the line below each reply shows.", "options", "off|tokens|full|cost"
    ),
    CommandSpec("stop", "Stop the run that is answering.", "session"),
    CommandSpec("restart", "Restart the gateway.", "tools", owner_only=True),
    CommandSpec(
        "activation", "Answer in this group when named, or always.", "management", "mention|always"
    ),
    CommandSpec(
        "send",
        "Whether this conversation is answered.",
        "management",
        "on|off|inherit",
        owner_only=True,
    ),
    CommandSpec("reset", "Start this conversation anew.", "session", "[text]"),
    CommandSpec("new", "Start a new conversation.", "session", "[model or text]"),
    CommandSpec("compact", "Summarise the conversation so far.", "session", "[instructions]"),
    CommandSpec(
        "think",
        "How hard the model thinks.",
        "options",
        "off|minimal|low|medium|high|xhigh",
        ("thinking", "t"),
    ),
    CommandSpec("verbose", "How much of the tool calls you see.", "options", "on|off|full", ("v",)),
    CommandSpec(
        "reasoning", "Whether you see the reasoning.", "options", "on|off|stream", ("reason",)
    ),
    CommandSpec(
        "elevated",
        "Whether commands may leave the sandbox.",
        "options",
        "on|off|ask|full",
        ("elev",),
        owner_only=True,
    ),
    CommandSpec(
        "exec",
        "Where commands run, and who is asked.",
        "options",
        "host= security= ask= node=",
        owner_only=True,
    ),
    CommandSpec("model", "Show or choose the model.", "options", "[name]"),
    CommandSpec("models", "Models by provider.", "options", "[provider|list]"),
    CommandSpec(
        "queue",
        "What happens to a message that arrives during a run.",
        "options",
        "mode debounce: cap: drop:",
    ),
    CommandSpec(
        "bash", "Run a command on the host.", "tools", "<command>", scope="text", owner_only=True
    ),
    *(
        CommandSpec(
            f"dock-{channel}",
            f"Continue this conversation on {channel.capitalize()}.",
            "docks",
            aliases=(f"dock_{channel}",),
        )
        for channel in _DOCK_CHANNELS
    ),
)

BY_NAME: Final = {
    name: command for command in COMMANDS for name in (command.name, *command.aliases)
}


def is_command_name(name: str) -> bool:
    """Return whether a word, without its slash, is a command or an alias of one."""
    return name.strip().lower() in BY_NAME


def parse_command(text: str, bot_name: str | None = None) -> ParsedCommand | None:
    """Return the command that the complete message is, or None.

    `bot_name` is our user name where several bots share a chat: `/stop@other` is not for us.
    """
    name, args = _split(text, bot_name)
    command = BY_NAME.get(name.lower())
    if command is None or (args and not command.args):
        return None
    return ParsedCommand(command, args)


def normalize_command_body(text: str, bot_name: str | None = None) -> str:
    """Return a message with its command spelled out: `/t: high` becomes `/think high`.

    Arguments keep their lines and case. An unknown name, and that of a command which takes no
    arguments but has some, stays as written; other messages are only stripped.
    """
    name, args = _split(text, bot_name)
    command = BY_NAME.get(name.lower())
    if command is None and not _NAME.fullmatch(name):
        return text.strip()
    if command and (command.args or not args):
        name = command.name
    return f"/{name} {args}" if args else f"/{name}"


def has_control_command(text: str, bot_name: str | None = None) -> bool:
    """Return whether the complete message is a command."""
    return parse_command(text, bot_name) is not None


def has_inline_command_tokens(text: str) -> bool:
    """Return whether any word looks like a command; a cheap test before parsing."""
    return _TOKEN.search(text) is not None


def is_abort_trigger(text: str) -> bool:
    """Return whether the complete message is a word that stops a run."""
    return text.strip().lower() in ABORT_WORDS


def is_abort_request_text(text: str, bot_name: str | None = None) -> bool:
    """Return whether the complete message stops a run: an abort word, or `/stop`."""
    parsed = parse_command(text, bot_name)
    return is_abort_trigger(text) or (parsed is not None and parsed.command.name == "stop")


def parse_reset(text: str, triggers: Sequence[str]) -> ParsedCommand | None:
    """Return the `/new` or `/reset` that the complete message is, or None.

    `triggers` are the configured texts that mean `/new` at the start of a message.
    """
    parsed = parse_command(text)
    if parsed:
        return parsed if parsed.command.name in RESETS else None
    rest = text_after_trigger(text, triggers)
    return None if rest is None else ParsedCommand(BY_NAME["new"], rest)


def _split(text: str, bot_name: str | None) -> tuple[str, str]:
    """Return name and arguments of `/name args`, `/name: args` and `/name@bot args`."""
    body = text.strip()
    if not body.startswith("/"):
        return "", ""
    word = body[1:].split(None, 1)
    if not word or body[1].isspace():
        return "", ""
    head, args = word[0], word[1] if len(word) > 1 else ""
    name, colon, glued = head.partition(":")
    if colon and name:
        head, args = name, f"{glued} {args}".strip()
    elif args.startswith(":"):
        args = args[1:].strip()
    name, at, bot = head.partition("@")
    if at and name and bot_name and bot.lower() == bot_name.strip().lstrip("@").lower():
        head = name
    return head, args
