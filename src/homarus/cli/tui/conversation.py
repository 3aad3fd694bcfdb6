"""One conversation: its history, what happens now, and both without doubles."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from homarus.cli.gateway_approver import CallMethod
from homarus.cli.tui.blocks import (
    Block,
    NoteBlock,
    QuestionBlock,
    ToolBlock,
    build_blocks,
    id_of,
    split_files,
    text_of,
)
from homarus.cli.tui.live_run import StreamedRun
from homarus.cli.tui.outbox import Outbox, OutgoingMessage
from homarus.cli.tui.payload import read_fields, read_rows, read_word
from homarus.core.errors import HomarusError
from homarus.core.message import Json

WELCOME: Final = "Nothing was said here yet. Type a message; / lists the commands, F1 the keys."
_PAGE: Final = 60
_SEARCH_PAGE: Final = 400
_MAX_CHARS: Final = 50_000  # of one text
_MAX_KEPT: Final = 1_000  # messages that are kept while the end is in view
_SENT_S: Final = 60.0  # in which a message is in the history, or its run under way
_RECENT: Final = 30  # messages that are compared with what was sent


class OpenConversation:
    """Follows one session. Pure but for `load` and `load_older`: its events are given to it."""

    def __init__(
        self, key: str, call: CallMethod, outbox: Outbox, on_change: Callable[[], None]
    ) -> None:
        self.key, self._call, self._outbox = key, call, outbox
        self._on_change = on_change
        self.messages: list[Mapping[str, Json]] = []
        self.row: Mapping[str, Json] = {}  # of the session, as sessions.list has it
        self.thinking = self.session_id = ""
        self.has_older = self.is_loaded = False
        self.page_size = _PAGE
        self.error = ""  # why it could not be loaded
        self.waiting_calls: frozenset[str] = frozenset()  # that wait for an approval
        self._runs: dict[str, StreamedRun] = {}
        self._built: tuple[Sequence[Mapping[str, Json]], list[Block]] = ([], [])
        self._loads = self._loaded = 0
        self._is_loading_older = False

    @property
    def runs(self) -> list[StreamedRun]:
        """The runs that are under way or that the history does not have."""
        return list(self._runs.values())

    @property
    def active_run(self) -> StreamedRun | None:
        return next((run for run in self._runs.values() if run.state == "running"), None)

    @property
    def is_busy(self) -> bool:
        """Whether a run is under way here, as far as it is known."""
        return self.active_run is not None or bool(self.row.get("hasActiveRun"))

    def get_blocks(self) -> list[Block]:
        """Return everything that is shown, oldest first."""
        if self._built[0] is not self.messages:
            self._built = (self.messages, build_blocks(self.messages))
        found = [self._newest(block) for block in self._built[1]]
        sent = self._outbox.of_session(self.key)
        started = [each for each in sent if each.run_id in self._runs]
        found += map(self._outgoing, started)
        for run in self._runs.values():
            found += [self._newest(block) for block in run.get_blocks()]
        found += [self._outgoing(each) for each in sent if each.run_id not in self._runs]
        if self.error:
            found.append(NoteBlock("load-error", self.error, "error"))
        if not found and self.is_loaded:
            found.append(NoteBlock("empty", WELCOME))
        return found

    def _newest(self, block: Block) -> Block:
        """Return a tool's newest state: the history has none of the output of one that runs."""
        if not isinstance(block, ToolBlock):
            return block
        if block.output is None:
            for run in self._runs.values():
                if live := run.tools.get(block.call_id):
                    block = replace(live, key=block.key)
        is_waiting = block.call_id in self.waiting_calls
        return block if block.is_waiting == is_waiting else replace(block, is_waiting=is_waiting)

    def _outgoing(self, message: OutgoingMessage) -> QuestionBlock:
        text, files = split_files(message.text)
        state = {
            "waiting": "waits for the connection",
            "sending": "",
            "refused": f"not sent: {message.error}",
            "sent": "queued" if self.is_busy and message.run_id not in self._runs else "",
        }[message.state]
        named = (*files, *(each.name for each in message.files))
        is_refused = message.state == "refused"
        return QuestionBlock(message.run_id, text, named, state=state, is_refused=is_refused)

    # Loading

    async def load(self) -> None:
        """Load the newest messages, and put them behind the older ones that are there."""
        self._loads += 1
        turn = self._loads
        try:
            page = await self._load_page(self.page_size)
        except HomarusError as exc:
            if not self.is_loaded:
                self.error = str(exc)
                self._on_change()
            return
        if turn < self._loaded:  # a newer answer came first
            return
        self._loaded = turn
        newest = read_rows(page.get("messages"))
        first = id_of(newest[0]) if newest else ""
        known = self.messages
        place = next((n for n, each in enumerate(known) if first and id_of(each) == first), -1)
        if place < 0:
            self.has_older = bool(page.get("hasMore"))
        self.messages = newest if place < 0 else [*known[:place], *_reuse(newest, known[place:])]
        self.key = read_word(page.get("sessionKey")) or self.key
        self.session_id = read_word(page.get("sessionId"))
        self.thinking = read_word(page.get("thinkingLevel"))
        if isinstance(row := page.get("sessionInfo"), dict):
            self.row = row
        self.error, self.is_loaded = "", True
        self._settle(newest)
        self._on_change()

    async def load_older(self, count: int = _PAGE) -> bool:
        """Load a page of older messages; return whether there was one."""
        before = id_of(self.messages[0]) if self.messages else ""
        if self._is_loading_older or not before or not self.has_older:
            return False
        self._is_loading_older = True
        try:
            page = await self._load_page(count, before)
        except HomarusError:
            return False
        finally:
            self._is_loading_older = False
        if not self.messages or id_of(self.messages[0]) != before:
            return False  # another part of the history was loaded meanwhile
        self.messages = [*read_rows(page.get("messages")), *self.messages]
        self.has_older = bool(page.get("hasMore"))
        self._on_change()
        return True

    def forget_old(self) -> None:
        """Keep the newest messages alone; older ones are loaded again when they are read."""
        if len(self.messages) > _MAX_KEPT:
            self.messages, self.has_older = self.messages[-_MAX_KEPT // 2 :], True

    async def search(self, text: str, found: str = "", *, step: int = -1) -> str:
        """Return the key of the next block that has the text: before the one found last, or after.

        Older messages are loaded until one has it.
        """
        wanted = text.casefold()
        while True:
            blocks = self.get_blocks()
            place = next((n for n, each in enumerate(blocks) if each.key == found), len(blocks))
            rest = reversed(blocks[:place]) if step < 0 else iter(blocks[place + 1 :])
            for block in rest:
                if wanted in _searched(block).casefold():
                    return block.key
            if step > 0 or not await self.load_older(_SEARCH_PAGE):
                return ""

    async def _load_page(self, count: int, before: str = "") -> Mapping[str, Json]:
        params: dict[str, Json] = {"sessionKey": self.key, "limit": count, "maxChars": _MAX_CHARS}
        found = await self._call(
            "chat.history", {**params, **({"before": before} if before else {})}
        )
        return found if isinstance(found, dict) else {}

    # Events

    def on_event(self, name: str, payload: Mapping[str, Json]) -> bool:
        """Handle an event of the session; return whether the history should be loaded again."""
        if payload.get("sessionKey") != self.key:
            return False
        match name:
            case "agent":
                return self._on_agent(payload)
            case "chat":
                return self._on_chat(payload)
            case "session.message" | "sessions.changed":
                if isinstance(row := payload.get("session"), dict):
                    self.row = row
                self._on_change()
                return name == "session.message" or bool(payload.get("reason"))
            case _:
                return False

    def on_disconnected(self) -> None:
        """Keep what is shown; the runs may end without an event."""
        for run in self._runs.values():
            run.is_stale = True
        self._on_change()

    def end_runs(self, ids: Sequence[str]) -> None:
        """Record that runs which the gateway does not know have ended."""
        for run in self._runs.values():
            if run.run_id not in ids and run.state == "running":
                run.end("stopped")
        self._on_change()

    def _run(self, run_id: str) -> StreamedRun:
        """Return a run. A stale one starts again: the gateway sends its text from the start."""
        run = self._runs.get(run_id)
        if run is None or run.is_stale:
            run = self._runs[run_id] = StreamedRun(run_id)
        return run

    def _on_agent(self, payload: Mapping[str, Json]) -> bool:
        phase = read_word(read_fields(payload.get("data")).get("phase"))
        if payload.get("stream") == "lifecycle" and phase not in {"start", "fallback"}:
            return False
        self._run(str(payload.get("runId"))).handle(payload)
        self._on_change()
        return False

    def _on_chat(self, payload: Mapping[str, Json]) -> bool:
        run_id, state = str(payload.get("runId")), payload.get("state")
        text = text_of(payload.get("message"))
        run = self._run(run_id)
        if state == "delta":
            run.catch_up(text)
            self._on_change()
            return False
        if text and not run.text.endswith(text):
            run.set_text(text)
        if state == "error":
            run.end("failed", str(payload.get("errorMessage") or "it failed"))
        else:
            run.end("stopped" if state == "aborted" else "done")
        self._on_change()
        return True

    def _settle(self, newest: Sequence[Mapping[str, Json]]) -> None:
        """Remove what the history has: runs that ended, their blocks, messages that were sent."""
        for run_id, run in list(self._runs.items()):
            if run.is_stale or run.is_settled(newest):
                del self._runs[run_id]
            else:
                run.prune(newest)
        recent = [each for each in newest if each.get("role") == "user"][-_RECENT:]
        keys = {read_word(each.get("idempotencyKey")) for each in recent}
        texts = {text_of(each).strip() for each in recent}
        is_idle = not self.row.get("hasActiveRun") and not self.row.get("queueDepth")
        for message in self._outbox.of_session(self.key):
            is_stored = f"{message.run_id}:user" in keys or (
                message.state == "sent" and message.text.strip() in texts
            )
            is_old = message.added_s < time.monotonic() - _SENT_S
            is_past = message.state == "sent" and is_idle and is_old
            if message.state != "refused" and (is_stored or is_past):
                self._outbox.discard(message.run_id)


def _searched(block: Block) -> str:
    """Return the text of a block that a search finds."""
    if isinstance(block, ToolBlock):
        return " ".join([block.name, *map(str, block.args.values()), block.output or ""])
    return block.text


def _reuse(
    newest: Sequence[Mapping[str, Json]], known: Sequence[Mapping[str, Json]]
) -> list[Mapping[str, Json]]:
    """Return the messages, with the known object for each that did not change."""
    by_id = {id_of(each): each for each in known}
    found = ((each, by_id.get(id_of(each), each)) for each in newest)
    return [same if same == each else each for each, same in found]
