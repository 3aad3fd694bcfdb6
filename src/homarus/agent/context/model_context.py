"""A session's messages as one model is sent them, kept within its context window.

`render` makes the request from the history. An overflow is noticed before the request, or reported
by the service; then the old turns are summarised (`compaction`), and the run continues.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from homarus.agent.agent import Agent
from homarus.agent.context.compaction import (
    CompactionResult,
    compact_messages,
    is_due,
    token_budget,
)
from homarus.agent.context.image_refs import (
    attach_named_images,
    load_named_images,
    workspace_reader,
)
from homarus.agent.context.pruning import is_pruned_provider
from homarus.agent.context.render import (
    NO_VIEW,
    RenderedContext,
    RenderParams,
    check_window,
    render,
)
from homarus.agent.context.tokens import fixed_tokens
from homarus.core.errors import ContextOverflowError, UserError
from homarus.core.message import Message, user_message
from homarus.providers.base import ModelRequest, Provider, ThinkLevel, ToolSpec
from homarus.providers.catalog import ModelInfo
from homarus.sessions.session import ExtraWrites, Session
from homarus.sessions.transcript import context_messages

if TYPE_CHECKING:
    from homarus.agent.context.summarizer import SummaryRequest

log = logging.getLogger(__name__)

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
        return self._cached.get(session_id, NO_VIEW)

    def save(self, session_id: str, view: RenderedContext) -> None:
        self._cached[session_id] = view
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
        views: RenderedContextCache,
        now_ms: Callable[[], int],
        max_turns: int = 0,
    ) -> None:
        self.session, self.agent, self.model = session, agent, model
        self._provider, self.thinking, self.api = provider, thinking, provider.api
        self.system, self.tools = system, tools
        self._views, self._now_ms = views, now_ms
        self._view = views.get(session.session_id)
        pruning = agent.pruning if is_pruned_provider(agent.pruning, model.provider) else None
        fixed = views.estimate_fixed(system, tools)
        same = self._view.frame.model == model.id
        pictures = self._view.frame.pictures if same else None
        self._frame = RenderParams(model.id, model.window, fixed, max_turns, pruning, pictures)
        self._check_window(fixed)

    def _check_window(self, fixed: int) -> None:
        fit = check_window(self.model.window, fixed)
        if fit.verdict == "refused":
            raise UserError(fit.reason, fix="choose a model with a larger window")
        if fit.verdict == "tight":
            log.info("%s: %s", self.model.ref, fit.reason)

    async def attach_images(self, question: Message) -> Message:
        """Return the question with the images it names, for a model with vision."""
        if not self.model.sees_images:
            return question
        read = workspace_reader(self.agent.workspace)
        if self._frame.pictures is None:
            history = tuple(self.session.messages)
            pictures = await asyncio.to_thread(load_named_images, history, read)
            self._frame = replace(self._frame, pictures=pictures)
        return await asyncio.to_thread(attach_named_images, question, read)

    @property
    def has_headroom(self) -> bool:
        """Whether the last request took only a small part of the context window."""
        view = self._view
        return view is not NO_VIEW and view.tokens * 4 < self.model.window

    def render(self, messages: list[Message] | tuple[Message, ...]) -> RenderedContext:
        """Render these messages."""
        self._view = render(messages, self._frame, self._view, self._now_ms())
        self._views.save(self.session.session_id, self._view)
        return self._view

    def request(self, messages: tuple[Message, ...]) -> ModelRequest:
        """Return the request. ContextOverflow when too little is left for the answer."""
        view, rules = self.render(messages), self.agent.compaction
        if rules.enabled and is_due(view, token_budget(rules, view)):
            raise ContextOverflowError(
                f"the conversation has about {view.tokens:,} tokens, too many for the window of"
                f" {self.model.ref} ({self.model.window:,})"
            )
        return self._request(view.messages)

    def _request(self, messages: tuple[Message, ...]) -> ModelRequest:
        return ModelRequest(
            self.model.id,
            self.system,
            messages,
            self.tools,
            thinking=self.thinking,
            params=self.model.params,
        )

    async def compact(
        self, extra_writes: ExtraWrites, *, instructions: str = "", is_requested: bool = False
    ) -> CompactionResult:
        """Summarise the old turns in one entry. UserError when a person requested it needlessly."""
        view = self.render(self.session.messages)
        room = token_budget(self.agent.compaction, view)
        lines = context_messages(await self.session.path())
        done = await compact_messages(
            lines,
            room=room,
            summarise=self._summarise,
            instructions=instructions,
            is_requested=is_requested,
        )
        await self.session.apply_compaction(
            done.to_entry(), done.fields(self.session.record.data), extra_writes
        )
        log.info(
            "%s: about %d tokens became %d", self.session.key, done.tokens_before, done.tokens_after
        )
        return done

    async def _summarise(self, ask: "SummaryRequest") -> str:
        thinks = _THINKING_TOKENS if self.model.reasoning else 0
        request = ModelRequest(
            self.model.id,
            ask.system,
            (user_message(ask.text),),
            max_tokens=ask.max_tokens + thinks,
            params=self.model.params,
        )
        async for piece in self._provider.stream(request):
            if isinstance(piece, Message):
                return piece.text
        raise AssertionError("a provider must end its stream with a Message")
