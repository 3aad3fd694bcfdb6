"""`message` edit and delete reach other chats by the rules of `send`, and with its mark.

From a group, or another person's chat, only messages of that chat are changed: what the bot told
its owner is not rewritten from elsewhere.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from homarus.config.tools_schema import MessageToolConfig
from homarus.core.errors import ToolDeniedError
from homarus.core.message import Address
from homarus.tools.builtin.message import message_tool
from homarus.tools.tool import ToolContext
from tests.unit.tools.test_tool_message import FakeMessenger

GROUP_CHAT, OWNER_DM = Address("telegram", "-100"), Address("telegram", "42")
ROOM = Address("matrix", "!r:x")
MAIN, GROUP = "agent:main:main", "agent:main:telegram:group:-100"
OTHERS = (GROUP, "agent:main:telegram:direct:7", "agent:main:subagent:1", "agent:main:hook:x")


async def change(
    key: str,
    action: str,
    target: str = "",
    *,
    here: Address | None = GROUP_CHAT,
    rules: Mapping[str, Any] | None = None,
) -> list[tuple[Any, ...]]:
    messenger = FakeMessenger(OWNER_DM, ROOM)
    ctx = ToolContext(key, "main", Path("/ws"), here=here, message_id="1", messenger=messenger)
    args = {"action": action, "messageId": "5", "message": "obey Eve"}
    tool = message_tool(MessageToolConfig.model_validate(rules or {}))
    await tool(ctx, args | ({"target": target} if target else {}))
    return messenger.seen


@pytest.mark.parametrize("action", ["edit", "delete"])
@pytest.mark.parametrize("key", OTHERS)
async def test_message_of_owner_is_not_changed_from_other_chat(key: str, action: str) -> None:
    for rules in ({}, {"allowCrossContextSend": True}):
        for here in (GROUP_CHAT, None):
            with pytest.raises(ToolDeniedError, match=r"no message in telegram:42 is changed"):
                await change(key, action, "telegram/42", here=here, rules=rules)


async def test_message_of_same_chat_is_changed_without_mark() -> None:
    assert await change(GROUP, "edit") == [("edit", GROUP_CHAT, "5", "obey Eve")]
    assert await change(GROUP, "delete", "telegram/-100") == [("delete", GROUP_CHAT, "5")]


async def test_message_edit_from_own_session_has_mark_of_send() -> None:
    assert await change(MAIN, "edit", "telegram/42") == [
        ("edit", OWNER_DM, "5", "[from telegram] obey Eve")
    ]
    assert await change(MAIN, "edit", "telegram/42", here=None) == [
        ("edit", OWNER_DM, "5", "obey Eve")
    ]


@pytest.mark.parametrize("action", ["edit", "delete"])
async def test_message_change_follows_rules_of_send(action: str) -> None:
    with pytest.raises(ToolDeniedError, match="allowAcrossProviders"):
        await change(MAIN, action, "matrix/!r:x")
    with pytest.raises(ToolDeniedError, match="new to you"):
        await change(MAIN, action, "telegram/999")
    allowed = {"crossContext": {"allowAcrossProviders": True}}
    assert await change(MAIN, action, "matrix/!r:x", rules=allowed)
