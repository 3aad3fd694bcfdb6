"""Declarations of tools that OpenClaw has and this program has not implemented.

Rules may name them, and they are known to belong to a group or to the owner. A tool that is
implemented declares itself, and its line here is removed.
"""

from typing import Final

from homarus.policy.tool_call import ToolDeclaration

_WITHOUT_GROUP: Final = (
    "tts", "terminal", "code_execution", "secrets", "x_search", "screen",
    "theme", "progress_card", "agents_wait", "get_goal", "create_goal", "update_goal",
    "heartbeat_respond", "plugins", "view_image", "image_generate", "music_generate",
    "video_generate", "wait", "tool_search", "tool_search_code", "tool_describe", "show_widget",
    "computer",
)  # fmt: skip

PLANNED_TOOLS: Final = (
    ToolDeclaration("canvas", ("ui",)),
    ToolDeclaration("nodes", ("nodes",), ("node_list", "node_command")),
    ToolDeclaration("whatsapp_login", is_owner_only=True),
    *(ToolDeclaration(name) for name in _WITHOUT_GROUP),
)
