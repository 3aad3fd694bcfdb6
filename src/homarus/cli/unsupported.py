"""The commands of OpenClaw that are not here: why, and what to use instead.

A test compares the rows with OpenClaw's reference: every leaf of it is a command here, or a row.
"""

from typing import Final

from homarus.core.fast_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class UnsupportedCommand:
    """A command of OpenClaw; `instead` is what to use, "" where nothing replaces it."""

    path: str
    reason: str
    instead: str = ""


_GUILDS: Final = "emoji, voice and events of a Discord server are managed in Discord"
_NODE_HOST: Final = "Homarus does not run as the node of another gateway"
_RELAY: Final = "the browser is controlled by a pipe, not by an extension of yours"
_EMULATION: Final = "the browser of an agent has no network log and emulates no device"
_GMAIL: Final = "no watcher of a mailbox is started"
_PYTHON: Final = "a plugin is a Python package, in use while it is installed"

UNSUPPORTED: Final = (
    UnsupportedCommand("update wizard", "there are no release channels", "homarus update status"),
    UnsupportedCommand("plugins enable", _PYTHON, "homarus plugins install PACKAGE"),
    UnsupportedCommand("plugins disable", _PYTHON, "homarus plugins uninstall PACKAGE"),
    UnsupportedCommand("message emoji list", _GUILDS),
    UnsupportedCommand("message emoji upload", _GUILDS),
    UnsupportedCommand("message sticker upload", _GUILDS, "homarus message sticker send"),
    UnsupportedCommand("message voice status", _GUILDS),
    UnsupportedCommand("message event list", _GUILDS),
    UnsupportedCommand("message event create", _GUILDS, "homarus cron add"),
    UnsupportedCommand("acp", "the agent client protocol is not built", "homarus mcp serve"),
    UnsupportedCommand(
        "gateway discover",
        "a gateway does not announce itself on the network",
        "homarus gateway probe --url URL",
    ),
    UnsupportedCommand(
        "models scan", "it measures the free models of one vendor", "homarus models refresh"
    ),
    UnsupportedCommand("node run", _NODE_HOST, "homarus gateway run"),
    UnsupportedCommand("node status", _NODE_HOST, "homarus nodes status"),
    UnsupportedCommand("node install", _NODE_HOST, "homarus gateway install"),
    UnsupportedCommand("node uninstall", _NODE_HOST, "homarus gateway uninstall"),
    UnsupportedCommand("node start", _NODE_HOST, "homarus gateway start"),
    UnsupportedCommand("node stop", _NODE_HOST, "homarus gateway stop"),
    UnsupportedCommand("node restart", _NODE_HOST, "homarus gateway restart"),
    UnsupportedCommand(
        "nodes run", "approvals of commands do not reach nodes", "homarus nodes invoke"
    ),
    UnsupportedCommand("browser set", _EMULATION, "homarus browser resize"),
    UnsupportedCommand("browser requests", _EMULATION, "homarus browser console"),
    UnsupportedCommand("browser trace", _EMULATION, "homarus browser screenshot"),
    UnsupportedCommand("browser extension install", _RELAY, "homarus browser start"),
    UnsupportedCommand("browser extension path", _RELAY, "homarus browser start"),
    UnsupportedCommand(
        "hooks install", "the packages of OpenClaw are for Node.js", "docs/hooks.md: copy a folder"
    ),
    UnsupportedCommand(
        "hooks update", "the packages of OpenClaw are for Node.js", "docs/hooks.md: copy a folder"
    ),
    UnsupportedCommand("webhooks gmail setup", _GMAIL, "docs/webhooks.md: the preset gmail"),
    UnsupportedCommand("webhooks gmail run", _GMAIL, "gog gmail watch serve"),
    UnsupportedCommand(
        "dns setup", "gateways are not found by DNS", "homarus gateway probe --url URL"
    ),
    UnsupportedCommand("voicecall", "calls are not built"),
)
