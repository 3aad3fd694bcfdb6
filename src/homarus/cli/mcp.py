"""`homarus mcp`: the Model Context Protocol."""

import click

from homarus.cli.command_group import CommandGroup, examples
from homarus.cli.mcp_serve import serve


@click.group("mcp", cls=CommandGroup)
@examples("homarus mcp serve")
def command() -> None:
    """Serve agents, chats and memory to MCP clients."""


command.add_command(serve)
