"""Chat commands: their names, aliases and arguments, and how a message is read as one.

The table is data; what a command does is written beside what it operates.
"""

import re
from typing import Literal, TypeAlias

from homarus.core.value import dataclass

Category: TypeAlias = Literal[
    "session", "options", "status", "management", "media", "tools", "docks"
]
Scope: TypeAlias = Literal["text", "native", "both"]

ABORT_WORDS = frozenset({"stop", "esc", "abort", "wait", "exit", "interrupt"})

_DOCK_CHANNELS = ("telegram", "discord", "slack")
_TOKEN = re.compile(r"(?<!\S)[/!][a-zA-Z]")


@dataclass(frozen=True, slots=True)
class Command:
    """One chat command. `args` shows what may follow it; empty: nothing may."""

    name: str
    help: str
    category: Category
    args: str = ""
    aliases: tuple[str, ...] = ()
    scope: Scope = "both"
    owner_only: bool = False


@dataclass(frozen=True, slots=True)
class Spoken:
    """A message read as a command."""

    command: Command
    args: str = ""


COMMANDS: tuple[Command, ...] = (
    Command("help", "The commands you will need first.", "status"),
    Command("commands", "Every command.", "status"),
    Command("status", "Model, context, queue and settings of this conversation.", "status"),
    Command("whoami", "How this channel names you.", "status", aliases=("id",)),
    Command("context", "What the model is given, counted.", "status", "[list|detail|json]"),
    Command(
        "export-session", "Write this conversation to a file.", "status", "[path]", ("export",)
    ),
    Command("skill", "Run a skill by name.", "tools", "<name> [input]"),
    Command(
        "tts",
        "Spoken replies.",
        "media",
        "on|off|status|provider|limit|summary|audio|help",
    ),
    Command(
        "allowlist",
        "Who may write here: show or change.",
        "management",
        "[list|add|remove] [entry]",
        scope="text",
        owner_only=True,
    ),
    Command(
        "approve",
        "Answer a waiting question about a command.",
        "management",
        "<id> allow-once|allow-always|deny",
    ),
    Command(
        "subagents",
        "Subagents of this conversation: see, message, stop or start them.",
        "management",
        "list|kill|log|info|send|steer|spawn [target] [value]",
    ),
    Command("kill", "Stop a subagent, or all.", "management", "<target|all>"),
    Command(
        "steer", "Tell a running subagent something.", "management", "<target> <message>", ("tell",)
    ),
    Command(
        "config",
        "Show or change the configuration.",
        "management",
        "show|get|set|unset path=value",
        owner_only=True,
    ),
    Command(
        "debug",
        "Settings that last until restart.",
        "management",
        "show|reset|set|unset path=value",
        owner_only=True,
    ),
    Command("usage", "What the line below each reply shows.", "options", "off|tokens|full|cost"),
    Command("stop", "Stop the run that is answering.", "session"),
    Command("restart", "Restart the gateway.", "tools", owner_only=True),
    Command(
        "activation", "Answer in this group when named, or always.", "management", "mention|always"
    ),
    Command(
        "send",
        "Whether this conversation is answered.",
        "management",
        "on|off|inherit",
        owner_only=True,
    ),
    Command("reset", "Start this conversation anew.", "session", "[text]"),
    Command("new", "Start a new conversation.", "session", "[model or text]"),
    Command("compact", "Summarise the conversation so far.", "session", "[instructions]"),
    Command(
        "think",
        "How hard the model thinks.",
        "options",
        "off|minimal|low|medium|high|xhigh",
        ("thinking", "t"),
    ),
    Command("verbose", "How much of the tool calls you see.", "options", "on|off|full", ("v",)),
    Command("reasoning", "Whether you see the reasoning.", "options", "on|off|stream", ("reason",)),
    Command(
        "elevated",
        "Whether commands may leave the sandbox.",
        "options",
        "on|off|ask|full",
        ("elev",),
        owner_only=True,
    ),
    Command(
        "exec",
        "Where commands run, and who is asked.",
        "options",
        "host= security= ask= node=",
        owner_only=True,
    ),
    Command("model", "Show or choose the model.", "options", "[name]"),
    Command("models", "Models by provider.", "options", "[provider|list]"),
    Command(
        "queue",
        "What happens to a message that arrives during a run.",
        "options",
        "mode debounce: cap: drop:",
    ),
    Command(
        "bash", "Run a command on the host.", "tools", "<command>", scope="text", owner_only=True
    ),
    *(
        Command(
            f"dock-{channel}",
            f"Continue this conversation on {channel.capitalize()}.",
            "docks",
            aliases=(f"dock_{channel}",),
        )
        for channel in _DOCK_CHANNELS
    ),
)

_BY_NAME = {name: command for command in COMMANDS for name in (command.name, *command.aliases)}


def is_command_name(name: str) -> bool:
    """Whether a word, without its slash, is a command or an alias of one."""
    return name.strip().lower() in _BY_NAME


def parse_command(text: str, bot_name: str | None = None) -> Spoken | None:
    """The command that a whole message is; None when it is something else.

    `bot_name` is our user name where several bots share a chat: `/stop@other` is not for us.
    """
    name, args = _split(text, bot_name)
    command = _BY_NAME.get(name.lower())
    if command is None or (args and not command.args):
        return None
    return Spoken(command, args)


def normalize_command_body(text: str, bot_name: str | None = None) -> str:
    """A message with its command written in full: `/t: high` becomes `/think high`.

    Arguments keep their lines and case; a message that is no command stays as it is.
    """
    name, args = _split(text, bot_name)
    command = _BY_NAME.get(name.lower())
    if command is None:
        return text.strip()
    return f"/{command.name} {args}" if args else f"/{command.name}"


def has_control_command(text: str, bot_name: str | None = None) -> bool:
    """Whether the whole message is a command."""
    return parse_command(text, bot_name) is not None


def has_inline_command_tokens(text: str) -> bool:
    """Whether any word looks like a command; cheap, to skip the real parsing."""
    return _TOKEN.search(text) is not None


def is_abort_trigger(text: str) -> bool:
    """Whether the whole message is a word that stops a run."""
    return text.strip().lower() in ABORT_WORDS


def is_abort_request_text(text: str, bot_name: str | None = None) -> bool:
    """Whether the whole message stops a run: an abort word, or `/stop`."""
    spoken = parse_command(text, bot_name)
    return is_abort_trigger(text) or (spoken is not None and spoken.command.name == "stop")


def _split(text: str, bot_name: str | None) -> tuple[str, str]:
    """The name and the arguments of `/name args`, `/name: args` and `/name@bot args`."""
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
