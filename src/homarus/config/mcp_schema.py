"""The section `mcp` of the config: the MCP servers whose tools agents may use.

The keys are those of OpenClaw 2026.9; `effects`, and the list of an agent's servers, are our own.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, Strict, model_validator
from pydantic_core import PydanticCustomError

from homarus.config.section import ConfigSection, NonEmptyStr, NonNegativeInt, PositiveInt, StrTuple

Seconds = Annotated[float, Field(gt=0, le=86_400)]


class McpToolFilterConfig(ConfigSection):
    """Which tools of a server exist for agents: names, or patterns with `*`; `exclude` wins."""

    include: StrTuple = ()
    exclude: StrTuple = ()


class McpServerConfig(ConfigSection):
    """One MCP server: a program (`command`) or an address (`url`).

    `timeout` and `connectTimeout` are seconds, the keys in `Ms` milliseconds. `effects` are what
    calls of the server's tools change outside the conversation: a run that has read untrusted
    content asks before them.
    """

    enabled: bool = True
    command: NonEmptyStr | None = None
    args: StrTuple = ()
    env: Mapping[str, str] = Field({}, repr=False)
    cwd: NonEmptyStr | None = None
    working_directory: NonEmptyStr | None = None
    url: NonEmptyStr | None = Field(None, repr=False)
    headers: Mapping[str, str] = Field({}, repr=False)
    transport: Literal["stdio", "http", "streamable-http", "sse"] | None = None
    timeout: Seconds | None = None
    request_timeout_ms: PositiveInt | None = None
    connect_timeout: Seconds | None = None
    connection_timeout_ms: PositiveInt | None = None
    supports_parallel_tool_calls: bool = False
    auth: Literal["oauth"] | None = None
    oauth: Mapping[str, Any] = Field({}, repr=False)
    ssl_verify: bool = True
    client_cert: NonEmptyStr | None = None
    client_key: NonEmptyStr | None = None
    tool_filter: McpToolFilterConfig = McpToolFilterConfig.model_construct()
    codex: Mapping[str, Any] = {}
    effects: Annotated[
        tuple[Literal["exec", "send", "identity", "config", "schedule"], ...], Strict(strict=False)
    ] = ()

    @model_validator(mode="after")
    def _has_one_place(self) -> "McpServerConfig":
        if (self.command is None) == (self.url is None):
            message = "a server has either command, a program, or url, an address"
            raise PydanticCustomError("place", "{message}", {"message": message})
        return self


class McpConfig(ConfigSection):
    """The MCP servers, and after how long without a call one is stopped; 0: never."""

    session_idle_ttl_ms: NonNegativeInt = 600_000
    servers: Mapping[NonEmptyStr, McpServerConfig] = {}


class AgentMcpConfig(ConfigSection):
    """The MCP servers that an agent may use; absent: all that are enabled."""

    servers: StrTuple | None = None
