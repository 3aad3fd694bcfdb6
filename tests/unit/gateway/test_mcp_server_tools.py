"""The tools for MCP clients: their scopes, their schemas, and the methods they call."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from homarus.core.errors import (
    ConfigError,
    HomarusError,
    InvalidRequestError,
    MissingExtraError,
    UnknownNameError,
)
from homarus.core.message import Json
from homarus.gateway.mcp_server import library
from homarus.gateway.mcp_server.history_rows import MAX_ROWS_CHARS, message_rows
from homarus.gateway.mcp_server.tool_table import (
    MAX_RESULT_CHARS,
    TOOLS,
    allowed_tools,
    call_served_tool,
)
from homarus.gateway.methods import METHODS
from homarus.gateway.scopes import SCOPES, implied

READ, WRITE, APPROVALS = "operator.read", "operator.write", "operator.approvals"
KEY = "agent:main:telegram:direct:42"
ROW = {
    "key": KEY,
    "kind": "direct",
    "channel": "telegram",
    "lastChannel": "telegram",
    "lastTo": "telegram:42",
    "lastAccountId": "default",
    "deliveryContext": {"channel": "telegram", "to": "42", "threadId": "7"},
    "updatedAt": 5,
    "model": "mock-1",
}


class FakeCalls:
    """A fake of the gateway: it answers with what a test gives, and records the calls."""

    def __init__(self, *scopes: str, **answers: Json) -> None:
        self.scopes = frozenset(scopes or SCOPES)
        self.calls: list[tuple[str, dict[str, Json], bool]] = []
        self._answers = {name.replace("_", "."): answer for name, answer in answers.items()}

    async def call(self, method: str, params: Mapping[str, Json], *, final: bool = True) -> Json:
        METHODS[method].params.model_validate(params)  # as the gateway would refuse it
        self.calls.append((method, dict(params), final))
        answer = self._answers[method]
        if isinstance(answer, Exception):
            raise answer
        return await answer() if callable(answer) else answer


async def use(gateway: FakeCalls, name: str, **arguments: Any) -> Any:
    result, text = await call_served_tool(gateway, name, arguments)
    assert json.loads(text) == result
    return result


def chat(**answers: Json) -> FakeCalls:
    return FakeCalls(
        chat_history={"sessionKey": KEY, "messages": []},
        sessions_list={"sessions": [ROW]},
        **answers,
    )


def test_served_tool_scope_is_that_of_its_methods() -> None:
    for tool in TOOLS.values():
        needed = {METHODS[name].scope for name in tool.methods}
        covered = implied([f"operator.{tool.scope}"])
        assert {f"operator.{scope}" for scope in needed} <= covered, tool.name
        assert tool.scope in needed, f"{tool.name} needs no more than its methods do"


def test_served_tools_are_listed_by_scope() -> None:
    def names(*scopes: str) -> set[str]:
        return {tool.name for tool in allowed_tools(frozenset(scopes))}

    assert names() == set()
    assert names(READ) == {
        "conversations_list",
        "conversation_get",
        "messages_read",
        "sessions_list",
        "sessions_history",
    }
    asking = {"messages_send", "sessions_send", "memory_search", "memory_get"}
    assert names(WRITE) == names(READ) | asking
    assert names(APPROVALS) == {"permissions_list_open", "permissions_respond"}
    assert names("operator.admin") == names(WRITE) | names(APPROVALS) == set(TOOLS)
    assert names("operator.pairing") == set()


@pytest.mark.parametrize("name", sorted(TOOLS))
async def test_served_tool_without_its_scope_calls_nothing(name: str) -> None:
    gateway = FakeCalls("operator.pairing")
    with pytest.raises(InvalidRequestError, match="which this client lacks"):
        await use(gateway, name)
    assert gateway.calls == []


@pytest.mark.parametrize("name", sorted(TOOLS))
async def test_served_tool_schema_is_an_object_that_forbids_others(name: str) -> None:
    schema = TOOLS[name].schema
    assert schema["type"] == "object" and schema["additionalProperties"] is False
    assert "title" not in json.dumps(schema) and TOOLS[name].description.endswith(".")
    size = len(json.dumps(schema, separators=(",", ":"))) + len(TOOLS[name].description)
    assert size < 1_200, f"{name} costs a model {size} characters"
    with pytest.raises(InvalidRequestError, match=f"invalid {name} arguments"):
        await use(FakeCalls(), name, unknown=1)


async def test_served_tool_of_unknown_name_offers_the_closest() -> None:
    with pytest.raises(UnknownNameError, match="sessions_list"):
        await use(FakeCalls(), "sessions_lists")


async def test_served_tool_result_that_is_too_large_is_refused() -> None:
    gateway = FakeCalls(memory_get={"text": "x" * MAX_RESULT_CHARS})
    with pytest.raises(InvalidRequestError, match="ask for fewer"):
        await use(gateway, "memory_get", path="MEMORY.md")


async def test_conversations_are_the_sessions_that_have_a_chat() -> None:
    web = {**ROW, "key": "agent:main:web", "lastChannel": "webchat", "lastTo": None}
    moved = {**ROW, "key": "agent:main:main", "lastChannel": "webchat", "lastTo": "irc:#reef"}
    gateway = FakeCalls(sessions_list={"sessions": [ROW, web, moved]})
    listed = await use(gateway, "conversations_list")
    assert [each["session_key"] for each in listed["conversations"]] == [KEY, "agent:main:main"]
    first, second = listed["conversations"]
    assert (first["to"], first["threadId"], first["accountId"]) == ("42", "7", "default")
    assert (second["channel"], second["to"]) == ("irc", "#reef")
    assert "model" not in first
    listed = await use(gateway, "conversations_list", channel="irc", limit=1)
    assert [each["channel"] for each in listed["conversations"]] == ["irc"]


async def test_messages_send_uses_the_route_of_the_session() -> None:
    gateway = chat(send={"status": "sent"})
    await use(gateway, "messages_send", session_key=KEY, text="ahoy")
    method, params, _ = gateway.calls[-1]
    key = params.pop("idempotencyKey")
    assert method == "send" and key.startswith("mcp-")
    assert params == {
        "to": "42",
        "channel": "telegram",
        "accountId": "default",
        "threadId": "7",
        "sessionKey": KEY,
        "message": "ahoy",
    }
    await use(gateway, "messages_send", session_key=KEY, text="ahoy")
    assert gateway.calls[-1][1]["idempotencyKey"] != key, "another request, another key"
    await use(gateway, "messages_send", to="irc:#reef", text="ahoy", idempotency_key="k1")
    params = gateway.calls[-1][1]
    assert params == {"to": "irc:#reef", "message": "ahoy", "idempotencyKey": "k1"}


async def test_messages_send_without_one_target_is_refused() -> None:
    for given in ({}, {"session_key": KEY, "to": "irc:#reef"}):
        with pytest.raises(InvalidRequestError, match="session_key or to"):
            await use(chat(), "messages_send", text="ahoy", **given)
    gateway = FakeCalls(
        chat_history={"sessionKey": "agent:main:x", "messages": []}, sessions_list={"sessions": []}
    )
    with pytest.raises(InvalidRequestError, match="no session"):
        await use(gateway, "messages_send", session_key="x", text="ahoy")


async def test_sessions_send_waits_or_is_only_accepted() -> None:
    done = {
        "status": "ok",
        "result": {"payloads": [{"text": "one"}, {"text": None}, {"text": "2"}]},
    }
    gateway = FakeCalls(agent=done)
    answer = await use(gateway, "sessions_send", message="hi", sessionKey="main")
    assert (answer["status"], answer["reply"]) == ("ok", "one\n\n2")
    answer = await use(gateway, "sessions_send", message="hi", timeoutSeconds=0)
    assert answer["status"] == "accepted"
    assert answer["runId"] == gateway.calls[-1][1]["idempotencyKey"]
    assert [is_final for _, _, is_final in gateway.calls] == [True, False]


async def test_sessions_send_that_takes_longer_can_be_asked_again() -> None:
    async def never() -> Json:
        await asyncio.Event().wait()

    gateway = FakeCalls(agent=never)
    answer = await use(
        gateway, "sessions_send", message="hi", timeoutSeconds=1, idempotencyKey="r1"
    )
    assert (answer["runId"], answer["status"]) == ("r1", "timeout")


async def test_gateway_error_of_a_method_is_passed_on() -> None:
    gateway = FakeCalls(agent=InvalidRequestError("send blocked by session policy"))
    with pytest.raises(HomarusError, match="blocked by session policy"):
        await use(gateway, "sessions_send", message="hi")


async def test_permissions_are_listed_and_answered() -> None:
    gateway = FakeCalls(exec_approval_list=[{"id": "a1"}], exec_approval_resolve={"ok": True})
    assert await use(gateway, "permissions_list_open") == {
        "approvals": [{"kind": "exec", "id": "a1"}]
    }
    await use(gateway, "permissions_respond", kind="exec", id="a1", decision="deny")
    assert gateway.calls[-1][:2] == ("exec.approval.resolve", {"id": "a1", "decision": "deny"})
    with pytest.raises(InvalidRequestError, match="decision"):
        await use(gateway, "permissions_respond", id="a1", decision="always")


async def test_memory_tools_pass_their_limits_on() -> None:
    gateway = FakeCalls(memory_search={"results": []}, memory_get={"text": ""})
    await use(gateway, "memory_search", query="boats", maxResults=3, minScore=0.5, agentId="a")
    assert gateway.calls[-1][1] == {
        "query": "boats",
        "maxResults": 3,
        "minScore": 0.5,
        "agentId": "a",
    }
    await use(gateway, "memory_get", path="MEMORY.md", lines=5, **{"from": 2})
    assert gateway.calls[-1][1] == {"path": "MEMORY.md", "from": 2, "lines": 5}


def message(role: str, *parts: Json, **fields: Json) -> Json:
    return {"role": role, "content": list(parts), "timestamp": 1, **fields}


def test_message_rows_have_tools_only_when_asked() -> None:
    call = {"type": "toolCall", "name": "read", "arguments": {}}
    told = [
        message("user", {"type": "text", "text": "look"}, {"type": "image"}),
        message("assistant", {"type": "thinking", "thinking": "hm"}, call),
        message("toolResult", {"type": "text", "text": "contents"}, toolName="read"),
        message("assistant", {"type": "text", "text": "done"}),
    ]
    plain = message_rows(told, 10, with_tools=False)
    assert [row["text"] for row in plain] == ["look", "done"]
    assert plain[0]["attachments"] == ["image"]
    with_tools = message_rows(told, 3, with_tools=True)
    assert [row["role"] for row in with_tools] == ["assistant", "toolResult", "assistant"]
    assert with_tools[0]["toolCalls"] == [call] and with_tools[1]["toolName"] == "read"


def test_message_rows_beyond_the_size_limit_leave_out_the_oldest() -> None:
    told = [message("user", {"type": "text", "text": f"{n}" * 4_000}) for n in range(9)] * 20
    rows = message_rows(told, 200, with_tools=False)
    assert 0 < len(rows) < 180 and rows[-1]["text"] == "8" * 4_000
    assert len(json.dumps(rows)) < MAX_ROWS_CHARS * 1.1


def test_missing_mcp_library_is_one_error_with_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    library.check_mcp_library()
    monkeypatch.setattr(library, "find_spec", lambda _name: None)
    with pytest.raises(MissingExtraError, match="the MCP server needs"):
        library.check_mcp_library()
    with pytest.raises(ConfigError, match=r"gateway\.http\.endpoints\.mcp\.enabled"):
        library.check_mcp_endpoint()
