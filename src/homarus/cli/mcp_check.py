"""The checks of `homarus doctor` about MCP servers; none is started."""

from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias

from homarus.config.schema import Config
from homarus.core.text import one_line

# What it is about, the state, the text and the fix, as of a finding of doctor.
McpFinding: TypeAlias = tuple[str, Literal["ok", "note", "bad"], str, str]


def check_mcp_servers(config: Config, env: Mapping[str, str]) -> Iterator[McpFinding]:
    """Yield the enabled servers that cannot be used: a missing program or package, a setting."""
    names = [name for name, entry in config.mcp.servers.items() if entry.enabled]
    if not names:
        return
    from importlib.util import find_spec

    from homarus.core.installation import extra_command
    from homarus.tools.mcp.server_settings import find_program, resolve_server

    if find_spec("mcp") is None:
        yield "mcp", "bad", "MCP servers need a package that is missing", extra_command("mcp")
    for name in names:
        settings, about = resolve_server(config, name), f"MCP server {name}"
        if settings.problem:
            yield about, "bad", settings.problem, settings.fix
        elif settings.command and find_program(settings, env) is None:
            program = one_line(settings.command, 100)
            fix = f"install it, or correct mcp.servers.{name}.command"
            yield about, "bad", f"there is no program {program}", fix
        else:
            yield about, "ok", f"it is {settings.place}", ""
