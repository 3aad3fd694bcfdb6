"""Calls for a client that a turn ends with, as the transcript records them. Pure.

The client runs them, and another run gets their results. Until then they have none; a question that
comes first gives them up.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field

from homarus.core.errors import InvalidRequestError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json, Message, ToolResult
from homarus.core.text import one_line
from homarus.sessions.transcript import CLIENT_CALLS, CUT_SHORT, NewEntry, decode_message
from homarus.store.base import TranscriptEntry

_MAX_SHOWN = 80


@dataclass(frozen=True, slots=True)
class ClientTurn:
    """The last turn of a path if it ends with calls for a client.

    `calls` are the ids of the calls, `results` the entries of those that have a result, by call.
    """

    calls: tuple[str, ...] = ()
    results: Mapping[str, str] = field(default_factory=dict)

    def check_results(self, call_ids: Sequence[str]) -> None:
        """Raise InvalidRequestError unless these are results for the calls, for each of them."""
        for call_id in call_ids:
            if call_id not in self.calls:
                raise InvalidRequestError(
                    f"no tool call {one_line(call_id, _MAX_SHOWN)!r} waits for a result",
                    fix="send the results before another message, with the ids of the last answer",
                )
        for call_id in self.calls:
            if call_id not in call_ids and call_id not in self.results:
                raise InvalidRequestError(
                    f"the tool call {one_line(call_id, _MAX_SHOWN)!r} has no result",
                    fix="send the results of all calls of an answer together",
                )


def client_calls(run_id: str, call_ids: Iterable[str]) -> NewEntry:
    """Return the entry of a run that ends with calls for its client."""
    data = {"runId": run_id, "calls": list(call_ids)}
    return NewEntry("custom", {"customType": CLIENT_CALLS, "data": data})


def client_calls_in(entry: TranscriptEntry, run_id: str = "") -> tuple[str, ...]:
    """Return the ids of the calls that an entry says are for the client of a run."""
    data: Json = entry.data.get("data")
    if entry.data.get("customType") != CLIENT_CALLS or not isinstance(data, dict):
        return ()
    if run_id not in {"", data.get("runId")}:
        return ()
    listed = data.get("calls")
    return tuple(map(str, listed)) if isinstance(listed, list) else ()


def client_turn_of(path: Iterable[TranscriptEntry]) -> ClientTurn:
    """Return the calls for a client that a path ends with; none if an answer follows them.

    A question gives up calls without a result. An answer that did not end does not count, so that
    the run for the results may be repeated.
    """
    calls, results = tuple[str, ...](), dict[str, str]()
    for entry in path:
        if entry.type == "custom":
            if found := client_calls_in(entry):
                calls, results = found, {}
            continue
        message = decode_message(entry) if calls else None
        if message is None:
            continue
        if _ends_turn(message, is_open=len(results) < len(calls)):
            calls, results = (), {}
        for part in message.parts:
            if isinstance(part, ToolResult) and part.call_id in calls:
                results[part.call_id] = entry.id
    return ClientTurn(calls, results)


def _ends_turn(message: Message, *, is_open: bool) -> bool:
    if message.role == "user":
        return is_open
    return message.role == "assistant" and not (message.origin and message.origin.stop in CUT_SHORT)


def without_results(messages: Sequence[Message], call_ids: Collection[str]) -> list[Message]:
    """Return messages without what stands for the results of these calls of the last answer."""
    end = len(messages)
    while end and messages[end - 1].role == "tool":
        end -= 1
    return [*messages[:end], *(each for each in messages[end:] if not _is_result(each, call_ids))]


def _is_result(message: Message, call_ids: Collection[str]) -> bool:
    return any(isinstance(part, ToolResult) and part.call_id in call_ids for part in message.parts)
