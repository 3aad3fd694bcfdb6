"""Encode a run as a response object, and as the events of its stream."""

from collections.abc import Iterator
from typing import Final

from homarus.agent.reply.payloads import arguments_text
from homarus.core.message import Json, ToolCall, Usage
from homarus.gateway.http_api.api_error import ApiError
from homarus.gateway.http_api.client_run import ClientRun
from homarus.gateway.http_api.event_stream import DONE, encode_event
from homarus.gateway.http_api.requested_tools import RequestedTools
from homarus.gateway.http_api.response_models import ResponseObject, ResponseRequest
from homarus.gateway.http_api.run_answer import RunAnswer

_NO_TEXT: Final[dict[str, Json]] = {"type": "output_text", "text": "", "annotations": []}


class ResponseEncoder:
    """Encodes one run; what it says of the request is the same in every event."""

    def __init__(self, run: ClientRun, body: ResponseRequest, tools: RequestedTools) -> None:
        self._run, self._tools = run, tools
        choice = body.tool_choice or "auto"
        self._base: dict[str, Json] = {
            "id": response_id(run.id),
            "created_at": run.created_s,
            "model": body.model,
            "instructions": body.instructions,
            "previous_response_id": body.previous_response_id,
            "tool_choice": choice if isinstance(choice, str) else choice.model_dump(),
            "tools": [
                {**tool.model_dump(), "strict": bool(tool.strict)} for tool in body.tools or ()
            ],
            "temperature": body.temperature,
            "top_p": body.top_p,
            "max_output_tokens": body.max_output_tokens,
        }
        self._sequence = 0
        self._text = ""
        self._output: list[dict[str, Json]] = []

    # The whole answer

    def encode(self, answer: RunAnswer) -> ResponseObject:
        """Return the response object; raises ApiError if `tool_choice` is not met."""
        self._tools.check(answer)
        output: list[dict[str, Json]] = []
        if answer.text or not answer.calls:
            output.append(self._message(answer.text, "completed"))
        output += [self._call(index, each) for index, each in enumerate(answer.calls)]
        return self._object(answer, output)

    def _object(self, answer: RunAnswer, output: list[dict[str, Json]]) -> ResponseObject:
        is_open = bool(answer.calls) or answer.is_cut
        reason = {"reason": "max_output_tokens"} if answer.is_cut and not answer.calls else None
        return ResponseObject(
            **self._base,
            status="incomplete" if is_open else "completed",
            output=output,
            usage=encode_usage(answer.usage),
            incomplete_details=reason,
        )

    def _message(self, text: str, status: str) -> dict[str, Json]:
        content = [{**_NO_TEXT, "text": text}] if status != "in_progress" else []
        return {
            "id": f"msg_{self._run.id}",
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": content,
        }

    def _call(self, index: int, call: ToolCall) -> dict[str, Json]:
        return {
            "id": f"fc_{self._run.id}_{index}",
            "type": "function_call",
            "call_id": call.id,
            "name": call.name,
            "arguments": arguments_text(call),
            "status": "completed",
        }

    # The stream

    def begin(self) -> Iterator[bytes]:
        for name in ("response.created", "response.in_progress"):
            yield self._event(name, response=self._snapshot("in_progress"))

    def add_text(self, text: str) -> Iterator[bytes]:
        if not self._text:
            yield from self._open_message()
        self._text += text
        yield self._text_event("response.output_text.delta", delta=text, logprobs=[])

    def end(self, answer: RunAnswer) -> Iterator[bytes]:
        try:
            self._tools.check(answer)
        except ApiError as exc:
            yield from self.fail(exc)
            return
        if not self._text and not answer.calls:
            yield from self._open_message()
        if self._text or not answer.calls:
            yield from self._close_message()
        for index, call in enumerate(answer.calls):
            yield from self._add_call(self._call(index, call))
        response = self._object(answer, self._output).model_dump(mode="json")
        is_cut = answer.is_cut and not answer.calls
        yield self._event(
            "response.incomplete" if is_cut else "response.completed", response=response
        )
        yield DONE

    def fail(self, error: ApiError) -> Iterator[bytes]:
        detail = {"code": error.reason or error.kind, "message": str(error)}
        response = {**self._snapshot("failed"), "output": self._output, "error": detail}
        yield self._event("response.failed", response=response)
        yield DONE

    def _snapshot(self, status: str) -> dict[str, Json]:
        found = ResponseObject(**self._base, status="in_progress", output=[])
        return {**found.model_dump(mode="json"), "status": status}

    def _open_message(self) -> Iterator[bytes]:
        item = self._message("", "in_progress")
        yield self._event("response.output_item.added", output_index=0, item=item)
        yield self._text_event("response.content_part.added", part=_NO_TEXT)

    def _close_message(self) -> Iterator[bytes]:
        part = {**_NO_TEXT, "text": self._text}
        item = self._message(self._text, "completed")
        self._output.append(item)
        yield self._text_event("response.output_text.done", text=self._text, logprobs=[])
        yield self._text_event("response.content_part.done", part=part)
        yield self._event("response.output_item.done", output_index=0, item=item)

    def _add_call(self, item: dict[str, Json]) -> Iterator[bytes]:
        at = {"output_index": len(self._output)}
        arguments, item_id = item["arguments"], item["id"]
        started = {**item, "arguments": "", "status": "in_progress"}
        self._output.append(item)
        yield self._event("response.output_item.added", **at, item=started)
        name = "response.function_call_arguments"
        yield self._event(f"{name}.delta", **at, item_id=item_id, delta=arguments)
        yield self._event(
            f"{name}.done", **at, item_id=item_id, name=item["name"], arguments=arguments
        )
        yield self._event("response.output_item.done", **at, item=item)

    def _text_event(self, name: str, /, **data: Json) -> bytes:
        place = {"item_id": f"msg_{self._run.id}", "output_index": 0, "content_index": 0}
        return self._event(name, **place, **data)

    def _event(self, name: str, /, **data: Json) -> bytes:
        event = {"type": name, "sequence_number": self._sequence, **data}
        self._sequence += 1
        return encode_event(event, name)


def response_id(run_id: str) -> str:
    """Return the id of the response of a run."""
    return f"resp_{run_id}"


def run_id_of(name: str) -> str:
    """Return the run of a response's id, "" for another text."""
    return name.removeprefix("resp_") if name.startswith("resp_") else ""


def encode_usage(usage: Usage) -> dict[str, Json]:
    """Return the tokens of all model calls of a run."""
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read,
            "cache_write_tokens": usage.cache_write,
        },
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.total,
    }
