"""The tools of a client in a run, and the messages that a client brings for it.

A client's tool has the name that the client gave it: one of the agent's with the same name is not
offered in this run. Results of calls are taken only for the calls that the last answer made.
"""

from collections.abc import Callable, Sequence

from homarus.core.errors import InvalidRequestError
from homarus.core.fast_dataclass import dataclass, replace
from homarus.core.message import ClientOptions, Inbound, Message, ToolCall, ToolResult
from homarus.policy.tool_policy import normalize_tool_name
from homarus.providers.base import ToolSpec
from homarus.sessions.client_turn import client_turn_of
from homarus.sessions.session import Session
from homarus.sessions.transcript import decode_stored_message
from homarus.tools.registry import ToolRegistry


def client_tool_specs(client: ClientOptions) -> tuple[ToolSpec, ...]:
    """Return the client's tools as they are declared to a model."""
    return tuple(ToolSpec(one.name, one.description, one.parameters) for one in client.tools)


def agent_tools(tools: ToolRegistry, client: ClientOptions | None) -> ToolRegistry:
    """Return the agent's tools that a run of a client has."""
    if client is None or not (client.tools or client.disables_tools):
        return tools
    taken = {normalize_tool_name(one.name) for one in client.tools}
    return tools.filter(
        lambda tool: not client.disables_tools and normalize_tool_name(tool.name) not in taken
    )


def make_is_client_call(client: ClientOptions | None) -> Callable[[ToolCall], bool]:
    """Return what says whether a call is of a tool of the client."""
    names = frozenset(one.name for one in client.tools) if client else frozenset[str]()
    return lambda call: call.name in names


@dataclass(frozen=True, slots=True)
class ClientMessages:
    """What a client's run adds before its question, if it has one.

    `resumes` is the entry after which the run goes on, when an earlier run saved the same results.
    """

    earlier: tuple[Message, ...] = ()
    has_question: bool = True
    resumes: str = ""


async def read_client_messages(session: Session, inbound: Inbound) -> ClientMessages:
    """Return the messages of a client's run; raises InvalidRequestError for unknown calls."""
    client = inbound.options.client
    has_question = bool(inbound.text or inbound.images or inbound.media)
    if client is None or not (client.results or client.history):
        return ClientMessages()
    if client.history:
        if session.is_used:
            raise InvalidRequestError("a session that has a conversation takes no other")
        return ClientMessages(_decode(client.history, inbound.at_ms), has_question)
    turn = client_turn_of(await session.path())
    results = _decode(client.results, inbound.at_ms)
    given = {_result_of(message).call_id: message for message in results}
    turn.check_results(tuple(given))
    names = {call.id: call.name for message in session.messages for call in message.calls}
    missing = [_named(given[each], names) for each in turn.calls if each not in turn.results]
    if missing or has_question:
        return ClientMessages(tuple(missing), has_question)
    return ClientMessages((), has_question=False, resumes=list(turn.results.values())[-1])


def _decode(stored: Sequence[object], at_ms: int) -> tuple[Message, ...]:
    messages = (decode_stored_message(each, at_ms) for each in stored if isinstance(each, dict))
    return tuple(message for message in messages if message is not None)


def _result_of(message: Message) -> ToolResult:
    return next(part for part in message.parts if isinstance(part, ToolResult))


def _named(message: Message, names: dict[str, str]) -> Message:
    """Return a result with the name of the tool that was called."""
    result = _result_of(message)
    return replace(message, parts=(replace(result, name=names.get(result.call_id, result.name)),))
