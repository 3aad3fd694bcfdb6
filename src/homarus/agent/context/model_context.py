"""A session's messages as one model is sent them, kept within its context window.

`render` makes the request from the history. An overflow is noticed before the request, or reported
by the service; then the old turns are summarised (`compaction`), and the run continues.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from homarus.agent.agent import Agent
from homarus.agent.context.compaction import (
    CompactionResult,
    compact_messages,
    is_due,
    token_budget,
)
from homarus.agent.context.image_refs import (
    Read,
    attach_named_images,
    load_named_images,
)
from homarus.agent.context.image_scaling import fit_message, has_images
from homarus.agent.context.pruning import is_pruned_provider
from homarus.agent.context.render import (
    NOT_RENDERED,
    RenderedContext,
    RenderParams,
    check_window,
    render,
)
from homarus.agent.context.tokens import fixed_tokens
from homarus.agent.skills.used_skills import read_fields
from homarus.core.errors import ContextOverflowError, UserError
from homarus.core.message import Json, Message, user_message
from homarus.providers.base import ModelRequest, Provider, ThinkLevel, ToolSpec
from homarus.providers.catalog import ModelInfo
from homarus.sessions.rejection import indexed_without_rejected
from homarus.sessions.session import ExtraWrites, Session
from homarus.sessions.transcript import TranscriptMessage, context_messages

if TYPE_CHECKING:
    from homarus.agent.context.summarizer import SummaryRequest

log = logging.getLogger(__name__)

NO_PARAMS: Final[Mapping[str, Json]] = MappingProxyType({})
# Params of a model that limit its answer, by the names of services.
_LIMITS: Final = frozenset(
    {"max_tokens", "maxTokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens"}
)
_MAX_CACHED = 64
_THINKING_TOKENS = 4_096  # for a model that always reasons


class RenderedContextCache:
    """The last rendering of each session, from which the next one continues."""

    def __init__(self) -> None:
        self._cached: OrderedDict[str, RenderedContext] = OrderedDict()
        self._fixed: tuple[str, tuple[ToolSpec, ...], int] = ("", (), 0)

    def estimate_fixed(self, system: str, tools: tuple[ToolSpec, ...]) -> int:
        """Estimate the tokens of every request; mostly the same as for the last one."""
        if self._fixed[:2] != (system, tools):
            self._fixed = system, tools, fixed_tokens(system, tools)
        return self._fixed[2]

    def get(self, session_id: str) -> RenderedContext:
        return self._cached.get(session_id, NOT_RENDERED)

    def save(self, session_id: str, rendered: RenderedContext) -> None:
        self._cached[session_id] = rendered
        self._cached.move_to_end(session_id)
        while len(self._cached) > _MAX_CACHED:
            self._cached.popitem(last=False)


class ModelContext:
    """The context of one run, made when its model and its prompt are known."""

    def __init__(
        self,
        session: Session,
        agent: Agent,
        provider: Provider,
        model: ModelInfo,
        *,
        system: str,
        tools: tuple[ToolSpec, ...],
        thinking: ThinkLevel,
        cache: RenderedContextCache,
        now_ms: Callable[[], int],
        max_turns: int = 0,
        params: Mapping[str, Json] = NO_PARAMS,
        get_reader: Callable[[], Read] = lambda: lambda _path: None,
    ) -> None:
        self.session, self.agent, self.model = session, agent, model
        self._provider, self.thinking, self.api = provider, thinking, provider.api
        self.system, self.tools = system, tools
        self._cache, self._now_ms, self._get_reader = cache, now_ms, get_reader
        self._asked = params  # by the client of the run
        self._rendered = cache.get(session.session_id)
        pruning = agent.pruning if is_pruned_provider(agent.pruning, model.provider) else None
        fixed = cache.estimate_fixed(system, tools)
        same = self._rendered.params.model == model.id
        images = self._rendered.params.images if same else None
        self._params = RenderParams(model.id, model.window, fixed, max_turns, pruning, images)

    def check_window(self) -> None:
        """Raise UserError when the window has no room for a conversation."""
        fit = check_window(self.model.window, self._params.fixed)
        if fit.verdict == "refused":
            raise UserError(fit.reason, fix="choose a model with a larger window")
        if fit.verdict == "tight":
            log.info("%s: %s", self.model.ref, fit.reason)

    async def attach_images(self, question: Message) -> Message:
        """Return the question with the images it names, for a model with vision, and scaled."""
        if self.model.sees_images:
            question = await self._attach_named(question)
        if not has_images(question):
            return question
        return await asyncio.to_thread(fit_message, question, self.agent.image_max_px)

    async def _attach_named(self, question: Message) -> Message:
        read = self._get_reader()
        if self._params.images is None:
            history = tuple(self.session.messages)
            images = await asyncio.to_thread(
                load_named_images, history, read, self.agent.image_max_px
            )
            self._params = replace(self._params, images=images)
        return await asyncio.to_thread(attach_named_images, question, read)

    @property
    def request_tokens(self) -> int:
        """About how many tokens the last request has."""
        return self._rendered.tokens if self._rendered is not NOT_RENDERED else 0

    @property
    def has_headroom(self) -> bool:
        """Whether the last request took only a small part of the context window."""
        rendered = self._rendered
        return rendered is not NOT_RENDERED and rendered.tokens * 4 < self.model.window

    def render(self, messages: list[Message] | tuple[Message, ...]) -> RenderedContext:
        """Render these messages."""
        self._rendered = render(messages, self._params, self._rendered, self._now_ms())
        self._cache.save(self.session.session_id, self._rendered)
        return self._rendered

    def request(self, messages: tuple[Message, ...]) -> ModelRequest:
        """Return the request. Raises ContextOverflowError when too little is left to answer."""
        rendered, rules = self.render(messages), self.agent.compaction
        if rules.enabled and is_due(rendered, token_budget(rules, rendered)):
            raise ContextOverflowError(
                f"the conversation has about {rendered.tokens:,} tokens, too many for the window of"
                f" {self.model.ref} ({self.model.window:,})"
            )
        return self._request(rendered.messages)

    def _request(self, messages: tuple[Message, ...]) -> ModelRequest:
        params, max_tokens = self.model.params, self._asked.get("max_tokens")
        if self._asked:
            given = {name: each for name, each in self._asked.items() if name != "max_tokens"}
            replaced = _LIMITS if max_tokens else ()
            kept = {name: each for name, each in params.items() if name not in replaced}
            params = {**kept, **given}
        return ModelRequest(
            self.model.id,
            self.system,
            messages,
            self.tools,
            thinking=self.thinking,
            max_tokens=max_tokens,
            params=params,
        )

    async def compact(
        self, extra_writes: ExtraWrites, *, instructions: str = "", is_requested: bool = False
    ) -> CompactionResult:
        """Summarise the old turns in one entry. Raises UserError when a request is needless."""
        rendered = self.render(self.session.messages)
        budget = token_budget(self.agent.compaction, rendered)
        lines = _without_rejected(context_messages(await self.session.path()))
        done = await compact_messages(
            lines,
            budget=budget,
            summarise=self._summarise,
            instructions=instructions,
            is_requested=is_requested,
            is_safeguarded=self.agent.compaction.mode == "safeguard",
        )
        entry, messages = self.session.record.data, self.session.messages
        fields = {**done.fields(entry), **read_fields(entry, messages)}
        await self.session.apply_compaction(done.to_entry(), fields, extra_writes)
        log.info(
            "%s: about %d tokens became %d", self.session.key, done.tokens_before, done.tokens_after
        )
        return done

    async def _summarise(self, request: "SummaryRequest") -> str:
        thinking_tokens = _THINKING_TOKENS if self.model.reasoning else 0
        model_request = ModelRequest(
            self.model.id,
            request.system,
            (user_message(request.text),),
            max_tokens=request.max_tokens + thinking_tokens,
            params=self.model.params,
        )
        async for piece in self._provider.stream(model_request):
            if isinstance(piece, Message):
                return piece.text
        raise AssertionError("a provider must end its stream with a Message")


def _without_rejected(lines: list[TranscriptMessage]) -> list[TranscriptMessage]:
    kept = indexed_without_rejected([line.message for line in lines])
    return [TranscriptMessage(lines[index].id, message) for index, message in kept]
