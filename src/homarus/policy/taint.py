"""Decide what a run asks before it does it after it has read untrusted content. Pure.

Text of others may contain instructions for the model, and a model may follow them. So a run that
has read such text asks a person before a call that changes something outside the conversation. The
rules are data: an effect of a call, and why it is asked about.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Final

from homarus.core.message import Inbound, InboundMetadata
from homarus.policy.tool_call import (
    ISOLATED_LEVEL,
    CallerFacts,
    Effect,
    LayerVerdict,
    TaintSource,
    ToolCallFacts,
)

LAYER: Final = "taint"
TAINT_RULES: Final[Mapping[Effect, str]] = {
    "exec": "runs a command on this machine",
    "send": "writes to a new recipient",
    "identity": "changes the agent's prompt files, skills or hooks",
    "config": "changes the configuration",
    "schedule": "schedules later runs",
}
# Tools whose every call has an effect, unless the call says more precisely which.
_TOOL_EFFECTS: Final[Mapping[str, Effect]] = {
    "exec": "exec",
    "bash": "exec",
    "nodes": "exec",
    "cron": "schedule",
}
# Actions of such tools that change nothing.
_READING: Final[Mapping[str, frozenset[str]]] = {"cron": frozenset({"status", "list", "runs"})}
# Programs that print what other machines send: their output is untrusted.
NETWORK_PROGRAMS: Final = frozenset(
    {
        "curl", "wget", "http", "https", "httpie", "xh", "aria2c", "lynx", "w3m", "links", "elinks",
        "ssh", "scp", "sftp", "rsync", "nc", "ncat", "netcat", "socat", "telnet", "ftp", "lftp",
        "gh", "glab", "himalaya", "mutt", "neomutt", "mail", "mailx", "notmuch", "gog", "yt-dlp",
    }
)  # fmt: skip
HOOK_CHANNEL: Final = "hook"  # of messages that programs of others send by `/hooks/agent`
INBOUND_MEDIA: Final = ("media", "inbound")  # the folder of files that came with messages
_WORD: Final = re.compile(r"[^\s;|&()<>`$\"']+")
_MAX_SHOWN: Final = 3


def call_effects(call: ToolCallFacts) -> frozenset[Effect]:
    """Return the effects of a call: those its preparation found, and those of its tool."""
    named = _TOOL_EFFECTS.get(call.tool.name)
    action = call.args.get("action")
    if isinstance(action, str) and action in _READING.get(call.tool.name, ()):
        named = None
    if call.exec is not None:
        named = "exec"
    return call.effects | {named} if named else call.effects


def taint_verdict(call: ToolCallFacts, caller: CallerFacts) -> LayerVerdict:
    """Return "ask" for a call with an effect, of a run that has read untrusted content.

    A command in a sandbox is not asked about: it cannot change this machine.
    """
    if not caller.taint:
        return LayerVerdict(LAYER, None, "the run has read nothing untrusted")
    effects = call_effects(call)
    if call.sandbox_level >= ISOLATED_LEVEL:
        effects -= {"exec"}
    reasons = [TAINT_RULES[effect] for effect in TAINT_RULES if effect in effects]
    read = describe_taint(caller.taint)
    if not reasons:
        return LayerVerdict(LAYER, None, f"the run has read {read}; {call.tool.name} is harmless")
    return LayerVerdict(
        LAYER, "ask", f"{call.tool.name} {' and '.join(reasons)}, and the run has read {read}"
    )


def describe_taint(sources: tuple[TaintSource, ...]) -> str:
    """Describe what a run has read, as `untrusted content (web https://a.example, file x.pdf)`."""
    shown = [f"{one.kind} {one.origin}".strip() for one in sources[:_MAX_SHOWN]]
    more = len(sources) - len(shown)
    return f"untrusted content ({', '.join(shown)}{f' and {more} more' if more > 0 else ''})"


def inbound_taint(inbound: Inbound) -> Iterator[TaintSource]:
    """Yield what a message contains that its sender did not write, or has no authority to ask for.

    A quote of our own message, and in a direct chat one of that chat, is not foreign. A pressed
    button has a text of ours.
    """
    metadata, address = inbound.metadata, inbound.address
    if address.channel == HOOK_CHANNEL:
        yield TaintSource("hook", inbound.sender)
    if metadata.forwarded or metadata.via_bot:
        yield TaintSource("forward", metadata.forwarded or f"bot {metadata.via_bot}")
    if is_foreign_quote(metadata):
        yield TaintSource("quote", metadata.reply_to)
    if inbound.group_history:
        yield TaintSource("group", metadata.title or address.chat)
    yield from (TaintSource(*source) for source in inbound.options.taint)
    if inbound.authority == "stranger":
        yield TaintSource("sender", f"{address.channel}:{inbound.sender}")


def is_foreign_quote(metadata: InboundMetadata) -> bool:
    """Return whether a message quotes a text that neither its sender nor we may have written."""
    if not metadata.quoted or (metadata.replies_to_us and not metadata.quotes_others):
        return False
    return metadata.quotes_others or metadata.kind != "direct" or not metadata.reply_to


def inbound_file_taint(path: str) -> TaintSource | None:
    """Return the source of a file that came with a message, else None.

    Who made a file is unknown, also when the owner sent it.
    """
    parts = posixpath.normpath(path).split("/")
    for at in range(len(parts) - 2):
        if tuple(parts[at : at + 2]) == INBOUND_MEDIA:
            return TaintSource("file", parts[-1])
    return None


def command_taint(command: str) -> TaintSource | None:
    """Return the source of what a command prints, if it is untrusted.

    It is when the command uses a program for the network, or names a file that came with a message.
    """
    for word in _WORD.findall(command):
        if (name := word.rpartition("/")[2].lower()) in NETWORK_PROGRAMS:
            return TaintSource("web", name)
        if source := inbound_file_taint(word):
            return source
    return None


def output_source(call: ToolCallFacts) -> TaintSource | None:
    """Return the source of a call's output when it is untrusted, else None.

    Untrusted is what a tool of a plugin or server returns, what a file contains that came with a
    message, and what a command prints that uses a program for the network or names such a file. A
    command that reads the network by other means is not recognised.
    """
    if call.tool.source != "builtin":
        kind, _, part = call.tool.source.partition(":")
        return TaintSource(kind or "plugin", part or call.tool.name)
    if "fs" in call.tool.groups:
        path = call.args.get("path") or call.args.get("file_path")
        return inbound_file_taint(path) if isinstance(path, str) else None
    command = call.args.get("command")
    if "exec" in call_effects(call) and isinstance(command, str):
        return command_taint(command)
    return None
