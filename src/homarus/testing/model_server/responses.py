"""OpenAI's Responses dialect."""

import base64
import itertools
import json
import time
from collections.abc import Iterable, Iterator, Sequence

from homarus.core.message import Json
from homarus.testing.model_server.dialect import (
    ErrorResponse,
    ServerMessage,
    ServerRequest,
    compact_json,
    usage_of,
)
from homarus.testing.model_server.openai import MODEL, OpenAIDialect
from homarus.testing.model_server.script import (
    CallTools,
    Content,
    Fail,
    Overflow,
    ReportedUsage,
    Say,
    ScriptedCall,
    Stop,
    StreamFault,
    Think,
)

ENCRYPTED = "reasoning.encrypted_content"

_CUT = {"length": "max_output_tokens", "filtered": "content_filter"}
_OF_THE_MODEL = frozenset({"reasoning", "function_call"})
_ids = itertools.count(1)


class ResponsesDialect:
    """The endpoint /v1/responses; the rest of /v1 is OpenAIDialect's."""

    def __init__(self) -> None:
        self._sister = OpenAIDialect()

    def parse_request(self, path: str, body: Json, body_bytes: int) -> ServerRequest | None:
        if not path.endswith("/responses") or not isinstance(body, dict):
            return None
        return ServerRequest(
            model=str(body.get("model", MODEL)),
            stream=bool(body.get("stream")),
            said=_said(body.get("input")),
            tools=len(body.get("tools") or ()),
            body_bytes=body_bytes,
            body=body,
        )

    def other(self, method: str, path: str, body: Json) -> Json | None:
        return None

    def make_streamer(self, ask: ServerRequest) -> "ResponsesStreamer":
        return ResponsesStreamer(ask)

    def full_response(self, ask: ServerRequest, steps: Sequence[Content]) -> bytes:
        speaker = ResponsesStreamer(ask)
        for step in steps:
            list(speaker.write(step))
        speaker.end()
        return compact_json(speaker.response())

    def error_response(self, step: Fail | Overflow) -> ErrorResponse:
        return self._sister.error_response(step)


class ResponsesStreamer:
    """One streamed response."""

    def __init__(self, ask: ServerRequest) -> None:
        self._ask = ask
        self._id, self._created_s = _id("resp"), int(time.time())
        self._sequence = itertools.count()
        self._steps: list[Content] = []
        self._output: list[dict[str, Json]] = []
        self._open: dict[str, Json] = {}  # the item whose text is coming
        self._text: list[str] = []
        self._status = "in_progress"

    def begin(self) -> list[bytes]:
        response = self.response()
        return [
            self._event("response.created", response=response),
            self._event("response.in_progress", response=response),
        ]

    def write(self, step: Content) -> Iterable[bytes]:
        self._steps.append(step)
        match step:
            case Think():
                return self._words(step, "reasoning")
            case Say():
                return self._words(step, "message")
            case CallTools():
                return self._call_tools(step)
            case ReportedUsage() | Stop():
                return ()

    def write_error(self, step: StreamFault) -> list[bytes]:
        return [self._event("error", code=step.code, message=step.message, param=None)]

    def end(self) -> list[bytes]:
        events = list(self._close())
        self._status = "incomplete" if self._cut() else "completed"
        return [*events, self._event(f"response.{self._status}", response=self.response())]

    def response(self) -> dict[str, Json]:
        """Return the answer as far as it has been streamed."""
        cut, ended = self._cut(), self._status != "in_progress"
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created_s,
            "status": self._status,
            "background": False,
            "error": None,
            "incomplete_details": {"reason": cut} if cut and ended else None,
            "instructions": self._ask.body.get("instructions"),
            "max_output_tokens": self._ask.body.get("max_output_tokens"),
            "metadata": {},
            "model": self._ask.model,
            "output": list(self._output),
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "reasoning": self._ask.body.get("reasoning") or {"effort": None, "summary": None},
            "store": self._ask.body.get("store", True),
            "temperature": 1.0,
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": self._ask.body.get("tools") or [],
            "top_p": 1.0,
            "truncation": "disabled",
            "usage": _usage(self._ask, self._steps) if ended else None,
        }

    def _words(self, step: Say, kind: str) -> Iterator[bytes]:
        if self._open.get("type") != kind:
            yield from self._close()
            yield from self._begin(kind)
        head, tail = self._around(self._open["id"], kind)
        for piece in step.pieces:
            self._text.append(piece)
            yield head + b"%d" % next(self._sequence) + tail % compact_json(piece)

    def _around(self, item_id: str, kind: str) -> tuple[bytes, bytes]:
        """Return what encloses a piece of text, built once: this is the hot path of benchmarks."""
        event = "reasoning_summary_text" if kind == "reasoning" else "output_text"
        place = {"item_id": item_id, "output_index": len(self._output)}
        rest: dict[str, Json] = {"logprobs": []} if kind == "message" else {}
        name = f"response.{event}.delta"
        head = f'event: {name}\ndata: {{"type":"{name}","sequence_number":'
        tail = compact_json({**place, self._part_index(kind): 0, "delta": "\0", **rest})[1:]
        return head.encode(), b"," + tail.replace(b'"\\u0000"', b"%b") + b"\n\n"

    def _begin(self, kind: str) -> Iterator[bytes]:
        item: dict[str, Json] = {"id": _id("rs" if kind == "reasoning" else "msg"), "type": kind}
        if kind == "reasoning":
            item |= {"summary": []}
            part, event = {"type": "summary_text", "text": ""}, "response.reasoning_summary_part"
        else:
            item |= {"status": "in_progress", "role": "assistant", "content": []}
            part, event = _output_text(""), "response.content_part"
        self._open, self._text = item, []
        yield self._event("response.output_item.added", **self._at(), item=item)
        place = {**self._at(item["id"]), self._part_index(kind): 0}
        yield self._event(f"{event}.added", **place, part=part)

    def _close(self) -> Iterator[bytes]:
        item, self._open = self._open, {}
        if not item:
            return
        kind, text = item["type"], "".join(self._text)
        place = {**self._at(item["id"]), self._part_index(kind): 0}
        if kind == "reasoning":
            part: dict[str, Json] = {"type": "summary_text", "text": text}
            yield self._event("response.reasoning_summary_text.done", **place, text=text)
            yield self._event("response.reasoning_summary_part.done", **place, part=part)
            item = {**item, "summary": [part]}
            if ENCRYPTED in (self._ask.body.get("include") or ()):
                item["encrypted_content"] = base64.b64encode(text.encode()).decode()
        else:
            part = _output_text(text)
            yield self._event("response.output_text.done", **place, text=text, logprobs=[])
            yield self._event("response.content_part.done", **place, part=part)
            item = {**item, "status": "completed", "content": [part]}
        yield self._event("response.output_item.done", **self._at(), item=item)
        self._output.append(item)

    def _call_tools(self, step: CallTools) -> Iterator[bytes]:
        yield from self._close()
        first = len(self._output)
        items = {index: _call(call) for index, call in enumerate(step.calls, first)}
        for index, item in items.items():
            begun = {**item, "status": "in_progress", "arguments": ""}
            yield self._event("response.output_item.added", output_index=index, item=begun)
        rest = {index: item["arguments"] for index, item in items.items()}
        while any(rest.values()):
            for index, text in rest.items():
                piece, rest[index] = text[: step.piece_chars], text[step.piece_chars :]
                if piece:
                    place = {"item_id": items[index]["id"], "output_index": index}
                    yield self._event(
                        "response.function_call_arguments.delta", **place, delta=piece
                    )
        for index, item in items.items():
            place = {"item_id": item["id"], "output_index": index, "name": item["name"]}
            yield self._event(
                "response.function_call_arguments.done", **place, arguments=item["arguments"]
            )
            yield self._event("response.output_item.done", output_index=index, item=item)
            self._output.append(item)

    def _at(self, item_id: str = "") -> dict[str, Json]:
        place = {"output_index": len(self._output)}
        return {"item_id": item_id, **place} if item_id else place

    def _part_index(self, kind: str) -> str:
        return "summary_index" if kind == "reasoning" else "content_index"

    def _cut(self) -> str:
        stops = [step.reason for step in self._steps if isinstance(step, Stop)]
        return _CUT.get(stops[-1], "") if stops else ""

    def _event(self, kind: str, **fields: Json) -> bytes:
        data = compact_json({"type": kind, "sequence_number": next(self._sequence), **fields})
        return f"event: {kind}\ndata: ".encode() + data + b"\n\n"


def _said(items: Json) -> list[ServerMessage]:
    """Return the messages of a request; consecutive items of the model are one of them."""
    if isinstance(items, str):
        return [ServerMessage("user", items)]
    said: list[ServerMessage] = []
    for item in items if isinstance(items, list) else ():
        if not isinstance(item, dict):
            continue
        kind, role = item.get("type"), str(item.get("role"))
        if kind == "function_call_output":
            said.append(ServerMessage("tool", _text_in(item.get("output"))))
        elif kind in _OF_THE_MODEL or role == "assistant":
            calls = kind == "function_call"
            text = _text_in(item.get("content")) if role == "assistant" else ""
            before = (
                said.pop()
                if said and said[-1].role == "assistant"
                else ServerMessage("assistant", "")
            )
            said.append(ServerMessage("assistant", before.text + text, before.calls or calls))
        else:
            said.append(ServerMessage(role, _text_in(item.get("content"))))
    return said


def _text_in(content: Json) -> str:
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return "\n".join(text for text in parts if isinstance(text, str))
    return content if isinstance(content, str) else ""


def _call(call: ScriptedCall) -> dict[str, Json]:
    arguments = call.args if isinstance(call.args, str) else json.dumps(dict(call.args))
    return {
        "id": _id("fc"),
        "type": "function_call",
        "status": "completed",
        "arguments": arguments,
        "call_id": call.id or _id("call"),
        "name": call.name,
    }


def _output_text(text: str) -> dict[str, Json]:
    return {"type": "output_text", "annotations": [], "logprobs": [], "text": text}


def _usage(ask: ServerRequest, steps: Sequence[Content]) -> dict[str, Json]:
    tokens = usage_of(ask, steps)
    return {
        "input_tokens": tokens.given,
        "input_tokens_details": {"cached_tokens": tokens.cached, "cache_write_tokens": 0},
        "output_tokens": tokens.answered,
        "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
        "total_tokens": tokens.given + tokens.answered,
    }


def _id(kind: str) -> str:
    return f"{kind}_{next(_ids):08x}"
