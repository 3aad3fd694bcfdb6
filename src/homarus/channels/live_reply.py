"""Show one answer while it grows: typing indicator, draft or preview message.

A growing answer is shown as a draft where the service has drafts, which it drops automatically; or,
where the config asks for it, as a message that is edited repeatedly and finally becomes the
answer's first part.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from homarus.channels.base import (
    Channel,
    SupportsDelete,
    SupportsDrafts,
    SupportsEdit,
    SupportsTyping,
)
from homarus.channels.outbound import render_parts
from homarus.channels.typing_indicator import TypingIndicator
from homarus.core.clock import Clock
from homarus.core.errors import ChannelAuthError, ChannelError, SendError
from homarus.core.message import Address, Extras, Outbound

if TYPE_CHECKING:
    from homarus.config.channels import AccountSettings

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_S: Final = 5.0  # timeout of one request
DRAFT_GAP_S: Final = 1.0  # minimum interval between two
EDIT_GAP_S: Final = 1.2
MAX_GAP_S: Final = 60.0
MIN_CHARS: Final = 30  # a message is not started with fewer characters
MAX_FAILURES: Final = 3
UNFINISHED: Final = "(This answer was not finished.)"

CurrentText: TypeAlias = Callable[[], str]  # the answer as far as it may be shown now


class PreviewTarget(Protocol):
    """A target in a chat where an answer is shown while it grows."""

    gap_s: float
    min_chars: int
    message_id: str  # of the message that shows it; "" when there is none

    async def show(self, text: str) -> None:
        """Show a text."""
        ...

    def pick(self, parts: Sequence[str]) -> str:
        """Return the part of a long answer to show."""
        ...

    def start_next(self) -> None:
        """Show what follows as another message."""
        ...


class DraftPreview:
    """Show the part being written as a draft."""

    gap_s, min_chars, message_id = DRAFT_GAP_S, 1, ""

    def __init__(self, channel: SupportsDrafts, to: Address, run: str) -> None:
        self._channel, self._to, self._run = channel, to, run
        self._number = 0

    async def show(self, text: str) -> None:
        await self._channel.draft(self._to, f"{self._run}:draft:{self._number}", text)

    def pick(self, parts: Sequence[str]) -> str:
        return parts[-1]

    def start_next(self) -> None:
        self._number += 1


class EditableChannel(Channel, SupportsEdit, Protocol):
    """A channel whose messages can be edited."""


class MessagePreview:
    """Show the answer's first part as a message, which the answer then replaces.

    Its key is the same when another process resumes the run: an idempotent service then returns the
    message that was left.
    """

    gap_s, min_chars = EDIT_GAP_S, MIN_CHARS

    def __init__(self, channel: EditableChannel, to: Address, run: str) -> None:
        self._channel, self._to, self._run = channel, to, run
        self._number = 0
        self.message_id = ""

    async def show(self, text: str) -> None:
        if self.message_id:
            await self._channel.edit(self._to, self.message_id, text)
            return
        key = f"{self._run}:preview:{self._number}"
        receipt = await self._channel.send(Outbound(self._to, text, key, Extras(silent=True)))
        self.message_id = receipt.message_id

    def pick(self, parts: Sequence[str]) -> str:
        return parts[0]

    def start_next(self) -> None:
        self._number, self.message_id = self._number + 1, ""


def make_preview(
    channel: Channel, to: Address, run: str, settings: "AccountSettings"
) -> PreviewTarget | None:
    """Return the preview of a chat, None if the service or the config has none."""
    mode = settings.stream_mode
    if mode == "off":
        return None
    if isinstance(channel, SupportsDrafts) and channel.can_draft(to):
        return DraftPreview(channel, to, run)
    if mode and isinstance(channel, SupportsEdit):
        return MessagePreview(channel, to, run)
    return None


class LiveReply:
    """Show one run in its chat. `run` is its task; `on_close` is called when it closes."""

    def __init__(
        self,
        channel: Channel,
        to: Address,
        clock: Clock,
        settings: "AccountSettings",
        *,
        current_text: CurrentText,
        preview: PreviewTarget | None,
        typing: TypingIndicator | None,
        on_close: "Callable[[LiveReply], None]",
    ) -> None:
        self.task: asyncio.Task[None] | None = None
        self._on_close = on_close
        self._channel, self._to, self._clock, self._settings = channel, to, clock, settings
        self._current_text, self._preview, self._typing = current_text, preview, typing
        self._changed, self._idle = asyncio.Event(), asyncio.Event()
        self._idle.set()
        self._is_paused = self._is_over = False
        self._shown = ""
        self._gap_s = preview.gap_s if preview else 0.0
        self._failures = 0

    def update(self, *, typing: bool | None) -> None:
        """Wake the task; `typing` shows or hides the indicator."""
        if typing and self._typing:
            self._typing.refresh()
        elif typing is False and self._typing:
            self._typing.stop()
        self._changed.set()

    async def pause(self) -> str:
        """Pause, and return the id of the message that shows the answer, "" when none does.

        A request under way is awaited: it must not arrive after what is sent next.
        """
        self._is_paused = True
        with suppress(TimeoutError):
            async with asyncio.timeout(REQUEST_TIMEOUT_S + 1):
                await self._idle.wait()
        return self._preview.message_id if self._preview else ""

    def resume(self, *, taken: bool) -> None:
        """Resume after the answer was enqueued; `taken`: it replaces the message."""
        if self._preview and (taken or not self._preview.message_id):
            self._preview.start_next()
            self._shown = ""
        self._is_paused = False
        self._changed.set()

    def close(self) -> None:
        """Show nothing more: the run is over."""
        self._on_close(self)

    async def run(self) -> None:
        """Show the current text until cancelled."""
        async with asyncio.TaskGroup() as group:
            if self._typing:
                group.create_task(self._typing.run())
            if self._preview:
                group.create_task(self._run_preview(self._preview))

    async def remove_preview(self) -> None:
        """Remove a preview that became no answer."""
        channel, message_id = self._channel, self._preview.message_id if self._preview else ""
        if self._typing and self._typing.was_shown and isinstance(channel, SupportsTyping):
            await best_effort("typing sign", lambda: channel.show_typing(self._to, on=False))
        if message_id and isinstance(channel, SupportsDelete):
            await best_effort("delete", lambda: channel.delete(self._to, message_id))
        elif message_id and isinstance(channel, SupportsEdit):
            parts = render_parts(UNFINISHED, channel.capabilities, self._settings)
            await best_effort("edit", lambda: channel.edit(self._to, message_id, parts[0].text))

    async def _run_preview(self, preview: PreviewTarget) -> None:
        while not self._is_over:
            await self._changed.wait()
            self._changed.clear()
            text = "" if self._is_paused else self._next(preview)
            if not text:
                continue
            self._idle.clear()
            try:
                await self._show(preview, text)
            finally:
                self._idle.set()
            await self._clock.sleep(self._gap_s)

    def _next(self, preview: PreviewTarget) -> str:
        """Return the text to show; "" when it is shown, or still too short."""
        text = self._current_text()
        if self._settings.stream_mode == "block":
            text = text[: max(text.rfind("\n\n"), 0)]
        if not self._shown and len(text) < preview.min_chars:
            return ""
        parts = render_parts(text, self._channel.capabilities, self._settings)
        shown = preview.pick([part.text for part in parts]) if parts else ""
        return shown if shown != self._shown else ""

    async def _show(self, preview: PreviewTarget, text: str) -> None:
        """Show a text; a rate-limited service is updated less often."""
        after_s = 0.0
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                await preview.show(text)
        except SendError as exc:
            log.debug("an answer could not be shown while it grows: %s", exc)
            if not exc.retryable:
                self._is_over = True
                # The message is gone, or not ours to change: nothing replaces it.
                preview.start_next()
            after_s = exc.after_s or 0.0
        except (ChannelError, TimeoutError, OSError) as exc:
            log.debug("an answer could not be shown while it grows: %s", str(exc) or "too slow")
            self._failures += 1
            self._is_over = self._failures >= MAX_FAILURES or self._should_give_up(preview, exc)
        else:
            self._shown, self._failures = text, 0
            self._gap_s = max(preview.gap_s, self._gap_s / 2)
            return
        self._gap_s = min(max(self._gap_s * 2, after_s), MAX_GAP_S)
        self._changed.set()

    def _should_give_up(self, preview: PreviewTarget, exc: Exception) -> bool:
        """Return whether to give up: a message that may exist is not started again."""
        if isinstance(exc, ChannelAuthError):
            return True
        is_first_send = isinstance(preview, MessagePreview) and not preview.message_id
        return is_first_send and not self._channel.capabilities.idempotent


async def best_effort(what: str, send: Callable[[], Awaitable[None]]) -> None:
    """Send a best-effort request: failures are only logged."""
    try:
        async with asyncio.timeout(REQUEST_TIMEOUT_S):
            await send()
    except (ChannelError, TimeoutError, OSError) as exc:
        log.debug("%s: %s", what, str(exc) or "too slow")
