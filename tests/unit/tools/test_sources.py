"""Tool sources: found by listing packages, imported when they are used."""

import subprocess
import sys
from typing import Any

from homarus.config.schema import Config
from homarus.tools.sources import ToolSourceContext, load_tools, source_names


def context(**changes: Any) -> ToolSourceContext:
    config = Config()
    return ToolSourceContext("main", config, lambda _key: config.tools, **changes)


def test_source_names_lists_builtin_modules_and_tools_of_packages() -> None:
    names = source_names()
    assert "homarus.tools.builtin.files" in names
    assert "homarus.memory.tools" in names


def test_source_names_imports_no_source() -> None:
    code = (
        "import sys; from homarus.tools.sources import source_names; source_names();"
        "print([name for name in source_names() if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_load_tools_without_chats_or_memory_omits_their_tools() -> None:
    names = {tool.name for tool in load_tools(context())}
    files = {"edit", "file_delete", "find", "grep", "ls", "read", "write"}
    others = {"ask_user", "browser", "exec", "image", "process", "web_fetch", "web_search"}
    assert names == files | others


def test_load_tools_with_chats_and_memory_has_every_tool() -> None:
    tools = load_tools(context(has_chats=True, memory=lambda: None))
    assert "message" in tools and "memory_search" in tools and "exec" in tools
