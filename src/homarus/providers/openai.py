"""The provider for OpenAI's chat completions API and services compatible with it.

`create` makes a Provider from a `ProviderConnection`. `models` holds what is known of each model
(price, abilities, flags); other models get a plain request.
"""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import aclosing

from homarus.core.clock import Clock, SystemClock
from homarus.core.errors import ProviderTimeout, StreamBroken
from homarus.core.message import Json, Message, Origin
from homarus.providers.base import Delta, Request, ToolSpec
from homarus.providers.catalog import Model
from homarus.providers.chat_reply import Malformed, Reply, object_of
from homarus.providers.chat_request import Turns, tool_list
from homarus.providers.compat import Compat, compat_of
from homarus.providers.conversation import encode_json
from homarus.providers.failures import Problem, Subject, broken, error_of, problem_in
from homarus.providers.http import Endpoint, Settings

__all__ = ["API", "OpenAI", "Settings", "create"]

API = "openai-completions"
APIS = ("openai-completions", "ollama")
DONE = "[DONE]"
# Finish reasons of answers that the model did not end itself.
_BAD_ENDS = {
    "content_filter": Problem(0, "its filter stopped the answer", "content_filter"),
    "insufficient_system_resource": Problem(503, "it ran out of resources"),
    "error": Problem(0, "it stopped with an error"),
    "abort": Problem(0, "it stopped with an abort"),
}


def create(
    settings: Settings, *, models: Iterable[Model] = (), clock: Clock | None = None
) -> "OpenAI":
    """Return a provider; it opens no connection before its first request."""
    return OpenAI(settings, {model.id: model for model in models}, clock or SystemClock())


class OpenAI:
    """A service that implements chat completions."""

    api = API

    def __init__(self, settings: Settings, models: Mapping[str, Model], clock: Clock) -> None:
        self.name = settings.name
        self._settings, self._models, self._clock = settings, models, clock
        self._endpoint = Endpoint(settings, clock)
        self._wires: dict[str, _Wire] = {}

    async def stream(self, request: Request) -> AsyncIterator[Delta | Message]:
        model = self._models.get(request.model) or Model(self.name, request.model, known=False)
        subject = self._endpoint.subject(request.model)
        body = self._wire(model).body(request)
        reply = Reply()
        done = False
        try:
            async with (
                self._endpoint.post("/chat/completions", body, subject, model.headers) as answer,
                aclosing(answer.events()) as events,
            ):
                async for data in events:
                    if data.startswith(DONE):
                        done = True
                        await answer.drain()
                        break
                    if not data.strip():
                        continue
                    for delta in reply.add(_chunk(data, subject)):
                        yield delta
        except (StreamBroken, ProviderTimeout):
            if not (done or reply.finish):
                raise  # a connection lost after the end of the answer loses nothing
        except Malformed as exc:
            raise broken(subject, f"its answer is malformed: {exc}") from exc
        yield self._message(reply, model, subject, done=done)

    async def close(self) -> None:
        await self._endpoint.close()

    def _wire(self, model: Model) -> "_Wire":
        wire = self._wires.get(model.id)
        if wire is None:
            compat = compat_of(self._settings.base_url, self._settings.compat, model.compat)
            wire = self._wires[model.id] = _Wire(model, self.name, compat)
        return wire

    def _message(self, reply: Reply, model: Model, subject: Subject, *, done: bool) -> Message:
        if not (done or reply.finish or reply.whole):
            raise broken(subject, "its answer ended before its end")
        if reply.finish in _BAD_ENDS:
            raise error_of(subject, _BAD_ENDS[reply.finish], midway=True)
        origin = Origin(self.api, self.name, model.id, reply.stop(), reply.usage(model.price))
        return Message("assistant", reply.message_parts(), self._clock.now_ms(), origin)


class _Wire:
    def __init__(self, model: Model, provider: str, compat: Compat) -> None:
        self._model, self._compat = model, compat
        sees = model.sees_images or not model.known
        self._turns = Turns(compat, provider=provider, model=model.id, sees_images=sees)
        self._tools: tuple[tuple[ToolSpec, ...], bytes] = ((), b"[]")

    def body(self, request: Request) -> bytes:
        turns = self._turns.render(request.messages)
        if request.system:
            role = "developer" if self._thinks and self._compat.developer_role else "system"
            turns.insert(0, encode_json({"role": role, "content": request.system}))
        fields = self._fields(request)
        pieces = [encode_json(fields)[:-1], b',"messages":[', b",".join(turns), b"]"]
        if request.tools and self._model.calls_tools and "tools" not in fields:
            pieces += [b',"tools":', self._tool_list(request.tools)]
        return b"".join((*pieces, b"}"))

    @property
    def _thinks(self) -> bool:
        return self._model.reasoning

    def _fields(self, request: Request) -> dict[str, Json]:
        """Return all fields but messages and tools; the caller's params override, null removes."""
        fields: dict[str, Json] = {"model": request.model, "stream": True}
        if self._compat.usage_in_streaming:
            fields["stream_options"] = {"include_usage": True}
        if self._compat.store:
            fields["store"] = False
        if request.max_tokens is not None:
            fields[self._compat.max_tokens_field] = request.max_tokens
        if self._thinks:
            fields.update(self._thinking(request))
        fields.update(request.params)
        fields.pop("messages", None)
        if not fields.get("stream"):
            fields.pop("stream_options", None)
        return {
            name: value for name, value in fields.items() if value is not None or name == "model"
        }

    def _thinking(self, request: Request) -> dict[str, Json]:
        wanted = request.thinking != "off"
        match self._compat.thinking_format:
            case "zai":
                return {"thinking": {"type": "enabled" if wanted else "disabled"}}
            case "qwen":
                return {"enable_thinking": wanted}
            case _ if wanted and self._compat.reasoning_effort:
                return {"reasoning_effort": request.thinking}
            case _:
                return {}

    def _tool_list(self, tools: tuple[ToolSpec, ...]) -> bytes:
        if tools != self._tools[0]:
            self._tools = (tools, tool_list(tools, strict=self._compat.strict is True))
        return self._tools[1]


def _chunk(data: str, subject: Subject) -> Mapping[str, Json]:
    chunk = object_of(data)
    if chunk.get("error") or chunk.get("object") == "error":
        raise error_of(subject, problem_in(chunk), midway=True)
    return chunk
