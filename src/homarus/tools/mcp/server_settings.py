"""The settings of one MCP server, resolved from the config: where it is, and its limits."""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from homarus.config.agent_settings import agent_entry
from homarus.config.mcp_schema import McpServerConfig, McpToolFilterConfig
from homarus.config.schema import Config
from homarus.core.errors import ToolError
from homarus.core.fast_dataclass import dataclass
from homarus.core.text import one_line
from homarus.policy.tool_call import Effect
from homarus.policy.tool_policy import normalize_tool_name

DEFAULT_REQUEST_S: Final = 60.0
DEFAULT_CONNECT_S: Final = 30.0
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")


@dataclass(frozen=True, slots=True)
class McpServerSettings:
    """One server: a program with its arguments and environment, or an address with its headers.

    `idle_s` is after how long without a call it is stopped, 0: never.
    """

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    cwd: str = ""
    url: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    is_tls_verified: bool = True
    client_cert: str = ""
    client_key: str = ""
    request_s: float = DEFAULT_REQUEST_S
    connect_s: float = DEFAULT_CONNECT_S
    idle_s: float = 600.0
    problem: str = ""  # why it cannot be used at all
    fix: str = ""

    @property
    def key(self) -> str:
        """What identifies the connection: other settings need another one."""
        values = [getattr(self, name) for name in self.__slots__]
        return hashlib.sha256(json.dumps(values).encode()).hexdigest()

    @property
    def place(self) -> str:
        """Where the server is, without arguments, headers and queries, which may have secrets."""
        if self.command:
            return self.command
        scheme, _, rest = self.url.partition("://")
        host = rest.partition("/")[0].rpartition("@")[2]
        path = rest.partition("/")[2].partition("?")[0].partition("#")[0]
        return f"{scheme}://{host}/{path}".rstrip("/")


def resolve_server(config: Config, name: str) -> McpServerSettings:
    """Return the settings of a configured server; what makes it unusable is its `problem`."""
    entry = config.mcp.servers[name]
    problem, fix = _find_problem(name, entry)
    return McpServerSettings(
        name,
        command=entry.command or "",
        args=tuple(entry.args),
        env=tuple(sorted(entry.env.items())),
        cwd=entry.cwd or entry.working_directory or "",
        url=entry.url or "",
        headers=tuple(sorted(entry.headers.items())),
        is_tls_verified=entry.ssl_verify,
        client_cert=entry.client_cert or "",
        client_key=entry.client_key or "",
        request_s=_seconds(entry.timeout, entry.request_timeout_ms, DEFAULT_REQUEST_S),
        connect_s=_seconds(entry.connect_timeout, entry.connection_timeout_ms, DEFAULT_CONNECT_S),
        idle_s=config.mcp.session_idle_ttl_ms / 1000,
        problem=problem,
        fix=fix,
    )


def _seconds(seconds: float | None, milliseconds: int | None, default: float) -> float:
    return milliseconds / 1000 if milliseconds else seconds or default


def _find_problem(name: str, entry: McpServerConfig) -> tuple[str, str]:
    if not _NAME.fullmatch(name) or "__" in name:
        return "its name is not valid", "use letters, digits, - and _ (no __), at most 40"
    if entry.url and not entry.url.startswith(("http://", "https://")):
        return "its url is no http address", "write http:// or https://"
    if entry.transport == "sse":
        return "the transport sse is not supported", 'use "streamable-http", which replaced it'
    if entry.auth == "oauth":
        return "OAuth logins are not supported", "put a token into headers, and remove auth"
    if entry.transport and (entry.transport == "stdio") != bool(entry.command):
        return f"the transport {entry.transport} does not fit", "remove transport"
    return "", ""


def configured_servers(config: Config, agent_id: str) -> Iterator[tuple[str, McpServerConfig]]:
    """Yield the enabled servers that an agent may use, in the order of their names."""
    allowed = agent_entry(config, agent_id).mcp.servers
    for name in sorted(config.mcp.servers):
        entry = config.mcp.servers[name]
        if entry.enabled and (allowed is None or name in allowed):
            yield name, entry


def has_tool(rules: McpToolFilterConfig, name: str) -> bool:
    """Return whether a server's filter leaves a tool, by its name on the server."""
    if any(fnmatchcase(name, each) for each in rules.exclude):
        return False
    return not rules.include or any(fnmatchcase(name, each) for each in rules.include)


def server_effects(entry: McpServerConfig) -> frozenset[Effect]:
    """Return what calls of a server's tools change outside the conversation."""
    return frozenset(entry.effects)


def check_server_name(name: str) -> None:
    """Raise ToolError for a name that is not valid, or that rules could confuse with a tool's."""
    from homarus.tools.sources import reserved_names  # it loads the program's own tools

    if not _NAME.fullmatch(name) or "__" in name:
        raise ToolError(
            f"{one_line(name, 60)!r} is no name of a server",
            fix="use letters, digits, - and _ (no __), at most 40",
        )
    if normalize_tool_name(name) in reserved_names():
        raise ToolError(
            f"a server cannot be named {name!r}: rules could not tell it from the tool",
            fix=f"choose another name, as {name}-server",
        )


def find_program(settings: McpServerSettings, env: Mapping[str, str]) -> str | None:
    """Return the path of a server's program, None when it is missing."""
    import shutil

    command = os.path.expanduser(settings.command)  # noqa: PTH111 - a bare name is no path
    if "/" in command and not command.startswith("/"):
        command = str(Path(settings.cwd or env.get("HOME", "/")).expanduser() / command)
    path = dict(settings.env).get("PATH") or env.get("PATH")
    return shutil.which(command, path=path)
