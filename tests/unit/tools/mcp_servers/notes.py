"""A well-behaved server, made with the official SDK: `python notes.py [--http PORT]`."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Context, MCPServer

DESCRIPTION = os.environ.get("NOTES_DESCRIPTION", "Add two numbers.")
server = MCPServer("notes", version="1.2")


@server.tool(description=DESCRIPTION)
def add(a: int, b: int) -> int:
    return a + b


@server.tool(description="Return variables of the environment.")
def environment(names: list[str]) -> dict[str, str]:
    return {name: os.environ.get(name, "(not set)") for name in names}


@server.tool(description="Work in steps.")
async def work(steps: int, ctx: Context[Any, Any]) -> str:
    for step in range(steps):
        await ctx.report_progress(step + 1, steps, f"step {step + 1}")
    return "worked"


@server.tool(description="Wait until the call is cancelled, and record that in a file.")
async def wait(path: str) -> str:
    Path(f"{path}.started").touch()
    try:
        await asyncio.sleep(3600)
    except BaseException:
        Path(path).write_text("cancelled", encoding="utf-8")
        raise
    return "waited"


@server.tool(description="Fail.")
def fail() -> str:
    raise ValueError("no such note")


@server.resource("notes://today", description="The note of today.")
def today() -> str:
    return "Buy milk."


@server.prompt(description="Ask for a summary.")
def summary(topic: str) -> str:
    return f"Summarise {topic}."


if __name__ == "__main__":
    if sys.argv[1:2] == ["--http"]:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
    else:
        server.run("stdio")
