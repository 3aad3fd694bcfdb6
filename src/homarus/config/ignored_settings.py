"""The settings of OpenClaw without an effect, each with the reason why ignoring it is safe.

Ignoring one gives no one more than the owner wrote. Settings that restrict and cannot be obeyed
are not here: they refuse a start, a run or a command (policy/restrictions.py).
"""

from collections.abc import Mapping
from typing import Final

_SANDBOX: Final = "it applies inside a sandbox, and runs that need one are refused"
_CONTAINERS: Final = ("browser", "docker", "perSession", "prune", "scope", "workspaceRoot")
_EXEC: Final = (
    "every command is approved by a person, runs in the foreground and ends with its call"
)
_LOOK: Final = "it changes how something looks or is found, not what is allowed"

# OpenClaw's settings that have no effect, by the start of their path.
WITHOUT_EFFECT: Final[Mapping[str, str]] = {
    "agents.defaults.cliBackends": "no other agent programs are started",
    "agents.defaults.elevatedDefault": "commands are never elevated",
    "agents.defaults.heartbeat": "there is no heartbeat",
    "agents.defaults.imageModel": "images go to the model of the conversation",
    "agents.defaults.models.<key>.streaming": _LOOK,
    **{
        f"agents.{each}.sandbox.{key}": _SANDBOX
        for each in ("defaults", "list[]")
        for key in (*_CONTAINERS, "sessionToolsVisibility")
    },
    "agents.defaults.subagents": "agents start no sub-agents",
    "agents.list[].heartbeat": "there is no heartbeat",
    "agents.list[].skills": "no skills are loaded",
    "agents.list[].subagents": "agents start no sub-agents",
    "agents.list[].tools.elevated": "commands are never elevated",
    "agents.list[].tools.exec": _EXEC,
    "agents.list[].tools.sandbox": _SANDBOX,
    "approvals": "commands are approved at the terminal alone",
    "audio": "audio is not transcribed",
    "browser": "there is no browser tool",
    "canvasHost": "there is no canvas",
    "commands.bash": "there is no /bash",
    "commands.bashForegroundMs": "there is no /bash",
    "commands.config": "there is no /config",
    "commands.debug": "there is no /debug",
    "commands.nativeSkills": "no skills are loaded",
    "cron": "there are no scheduled jobs",
    "diagnostics": "nothing is traced or exported",
    "discovery": "the gateway does not announce itself",
    "gateway.auth.allowTailscale": "Tailscale's login is never accepted as one",
    "gateway.auth.trustedProxy": "without a token or a password no proxy's users are admitted",
    "gateway.channelHealthCheckMinutes": "channels are supervised all the time",
    "gateway.controlUi": "the page always needs a paired device, at its own address",
    "gateway.http.endpoints": "these endpoints are not served",
    "gateway.nodes": "nodes get no commands",
    "gateway.remote": "it is for clients of another gateway",
    "gateway.tailscale": "the gateway does not publish itself by Tailscale",
    "gateway.tools": "tools cannot be called by HTTP",
    "hooks": "the gateway has no webhooks of its own",
    "logging.consoleLevel": _LOOK,
    "logging.consoleStyle": _LOOK,
    "media": "files are stored under their hash",
    "messages.messagePrefix": _LOOK,
    "messages.suppressToolErrors": "chats get no warnings of failed tools",
    "messages.tts": "nothing is spoken",
    "models.bedrockDiscovery": "models are not searched for",
    "nodeHost": "this program is no node",
    "plugins": "no plugins are loaded",
    "session.agentToAgent": "agents do not write to each other",
    "skills": "no skills are loaded",
    "talk": "nothing is spoken",
    "tools.agentToAgent": "agents do not write to each other",
    "tools.elevated": "commands are never elevated",
    "tools.exec": _EXEC,
    "tools.links": "links are not opened",
    "tools.media": "files are not described by other models",
    "tools.message.broadcast": "one message goes to one chat",
    "tools.sandbox": _SANDBOX,
    "tools.sessions": "there are no tools for other sessions",
    "tools.web": "there are no web tools",
    "ui": _LOOK,
    "update": "no updates are looked for",
    "web": "there is no WhatsApp adapter",
}  # fmt: skip


def reason_without_effect(path: str) -> str:
    """Return why a setting of OpenClaw may be ignored; "" if nothing is known of it."""
    if path.startswith("channels."):
        return "the channel has no adapter, and receives nothing"
    starts = (each for each in WITHOUT_EFFECT if path == each or path.startswith(f"{each}."))
    return WITHOUT_EFFECT.get(max(starts, key=len, default=""), "")


def describe_ignored(path: str) -> str:
    """Return the path of a setting without an effect, with the reason if there is one."""
    reason = reason_without_effect(path)
    return f"{path} ({reason})" if reason else path
