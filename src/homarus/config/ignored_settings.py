"""The settings without an effect, each with the reason why ignoring it is safe.

`WITHOUT_EFFECT` are those that the schema does not have, `UNREAD_KEYS` those that it checks and no
code reads. `doctor` and the start of a program name one only when it is set. Ignoring one gives no
one more than the owner wrote. Settings that restrict and cannot be obeyed are not here: they refuse
a start, a run or a command (policy/restrictions.py).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

_EXEC: Final = "commands run on this machine alone"
_LOOK: Final = "it changes how something looks or is found, not what is allowed"

# OpenClaw's settings that have no effect, by the start of their path.
WITHOUT_EFFECT: Final[Mapping[str, str]] = {
    "agents.defaults.cliBackends": "no other agent programs are started",
    "agents.defaults.models.<key>.streaming": _LOOK,
    **{
        f"agents.{each}.sandbox.browser": "a sandbox has no browser of its own"
        for each in ("defaults", "list[]")
    },
    "agents.list[].tools.exec": _EXEC,
    "audio": "audio is not transcribed",
    "canvasHost": "there is no canvas",
    "diagnostics.cacheTrace": "requests are not written to a file: homarus prompt shows the prompt",
    "discovery": "the gateway does not announce itself",
    "gateway.auth.allowTailscale": "Tailscale's login is never accepted as one",
    "gateway.auth.trustedProxy": "without a token or a password no proxy's users are admitted",
    "gateway.channelHealthCheckMinutes": "channels are supervised all the time",
    "gateway.controlUi": "the page always needs a paired device, at its own address",
    "gateway.http.endpoints.responses.files.pdf": "the pages of a PDF are not drawn",
    "gateway.nodes.browser": "the browser of a node is not used",
    "gateway.remote": "it is for clients of another gateway",
    "gateway.tailscale": "the gateway does not publish itself by Tailscale",
    **{
        f"hooks.gmail.{name}": "no watcher of a mailbox is started: start gog yourself"
        for name in (
            "account", "hookUrl", "label", "pushToken", "renewEveryMinutes", "serve",
            "subscription", "tailscale", "topic",
        )
    },
    "hooks.internal.installs": "it is OpenClaw's list of what it installed",
    "media": "files are stored under their hash",
    "messages.tts": "nothing is spoken",
    "models.bedrockDiscovery": "models are not searched for",
    "nodeHost": "this program is no node",
    "plugins": "no plugins are loaded, only the skills of those that are on",
    "talk": "nothing is spoken",
    "tools.exec": _EXEC,
    "tools.links": "links are not opened",
    "tools.media": "models of providers describe files; there are no commands, and no videos",
    "tools.message.broadcast": "one message goes to one chat",
    "ui": _LOOK,
    "update": "no updates are looked for",
    "web": "there is no WhatsApp adapter",
}  # fmt: skip


_ACCOUNT: Final = "channels.<key>"  # of every channel; its accounts have the same settings

# Settings of the schema that no code reads, by their path; `<key>` is any name.
UNREAD_KEYS: Final[Mapping[str, str]] = {
    **{
        f"agents.{each}.memorySearch.store.vector.extensionPath": (
            "the memory index needs no extension of SQLite"
        )
        for each in ("defaults", "list[]")
    },
    "auth.profiles.<key>.email": _LOOK,
    "browser.color": _LOOK,
    "browser.profiles.<key>.cdpPort": "the browser is controlled by a pipe, and opens no port",
    "browser.profiles.<key>.color": _LOOK,
    "browser.remoteCdpHandshakeTimeoutMs": "no browser of another machine is used",
    "browser.remoteCdpTimeoutMs": "no browser of another machine is used",
    "mcp.servers.<key>.codex": "no other agent programs are started",
    "mcp.servers.<key>.oauth": "there are no OAuth logins for MCP servers: use headers",
    "skills.entries.<key>.config": "only the skill itself reads it",
    "session.mainKey": "the key of the main session is always main, as in OpenClaw",
    "channels.discord.capabilities": "the capabilities are those of the adapter",
    "channels.discord.dm.groupChannels": "Discord admits no bot to group chats",
    "channels.discord.dm.groupEnabled": "Discord admits no bot to group chats",
    **{
        f"channels.discord.execApprovals.{key}": (
            "prompts go to the chat that asks, and where the section approvals sends them"
        )
        for key in ("agentFilter", "cleanupAfterResolve", "enabled", "sessionFilter", "target")
    },
    f"{_ACCOUNT}.guilds.<key>.slug": _LOOK,
    **{
        f"channels.discord.actions.{key}": "there is no such action"
        for key in ("emojiUploads", "events", "presence", "stickerUploads", "voiceStatus")
    },
    "channels.discord.actions.channels": "channels are not created or changed",
    "channels.discord.pluralkit": "messages of PluralKit are those of a bot",
    "channels.discord.ui": _LOOK,
    "channels.irc.capabilities": "the capabilities are those of the adapter",
    "channels.matrix.capabilities": "the capabilities are those of the adapter",
    "channels.slack.actions.emojiList": "the emoji of the workspace are not listed",
    "channels.slack.capabilities": "the capabilities are those of the adapter",
    "channels.slack.slashCommand.sessionPrefix": "a private answer is in the direct chat",
    "channels.slack.streaming": "a reply is sent when it is complete, or shown by streamMode",
    "channels.slack.thread.historyScope": "a thread has its own history",
    "channels.slack.thread.inheritParent": "a thread starts with its own messages",
    "channels.slack.userTokenReadOnly": "the user token is only for searches",
    "channels.telegram.actions.sticker": "no stickers are sent",
    "channels.telegram.draftChunk": "a draft is shown as it is written",
    "channels.telegram.reactionLevel": "the agent reacts when it is asked to",
}  # fmt: skip
# The value of such a setting that says what the program does anyway: it is not named.
OBEYED_VALUES: Final[Mapping[str, Any]] = {
    "session.mainKey": "main",
    "channels.slack.actions.emojiList": False,
    "channels.slack.streaming": False,
    "channels.slack.thread.historyScope": "thread",
    "channels.slack.thread.inheritParent": False,
    "channels.slack.userTokenReadOnly": True,
    "channels.telegram.actions.sticker": False,
}


def find_unread_keys(tree: Mapping[str, Any]) -> Iterator[str]:
    """Yield the settings of a config tree that are in `UNREAD_KEYS`, and of channels their name."""
    channels = tree.get("channels")
    names = list(channels) if isinstance(channels, Mapping) else []
    for path in UNREAD_KEYS:
        if not path.startswith("channels."):
            if _is_set(tree, path, path):
                yield path
            continue
        for name in names:
            own = path.replace(_ACCOUNT, f"channels.{name}", 1)
            start, rest = f"channels.{name}.", own.removeprefix(f"channels.{name}.")
            paths = (own, f"{start}accounts.<key>.{rest}")
            if own.startswith(start) and any(_is_set(tree, each, path) for each in paths):
                yield own


def _is_set(tree: Mapping[str, Any], path: str, listed: str) -> bool:
    """Return whether a setting has a value that is not obeyed anyway."""
    values = _values(tree, path.replace("[]", ".[]").split("."))
    return any(listed not in OBEYED_VALUES or value != OBEYED_VALUES[listed] for value in values)


def _values(tree: Any, steps: Sequence[str]) -> Iterator[Any]:
    """Yield the values at a path; `<key>` and `[]` stand for every key and entry."""
    if not steps:
        yield tree
    elif steps[0] == "[]":
        for each in tree if isinstance(tree, list) else ():
            yield from _values(each, steps[1:])
    elif isinstance(tree, Mapping):
        for key, each in tree.items():
            if steps[0] in {key, "<key>"}:
                yield from _values(each, steps[1:])


def reason_without_effect(path: str) -> str:
    """Return why a setting may be ignored; "" if nothing is known of it."""
    if path.startswith("channels."):
        _, name, *rest = path.split(".")
        common = ".".join((_ACCOUNT, *rest))
        own = UNREAD_KEYS.get(path) or UNREAD_KEYS.get(common)
        return own or f"the channel {name} has no adapter, and receives nothing"
    if path in UNREAD_KEYS:
        return UNREAD_KEYS[path]
    starts = (each for each in WITHOUT_EFFECT if path == each or path.startswith(f"{each}."))
    return WITHOUT_EFFECT.get(max(starts, key=len, default=""), "")


def describe_ignored(path: str) -> str:
    """Return the path of a setting without an effect, with the reason if there is one."""
    reason = reason_without_effect(path)
    return f"{path} ({reason})" if reason else path
