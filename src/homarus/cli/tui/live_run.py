"""A run under way: what was streamed and is not in the history yet."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

from homarus.cli.tui.blocks import (
    AnswerBlock,
    Block,
    NoteBlock,
    ThinkingBlock,
    ToolBlock,
    id_of,
    text_of,
)
from homarus.cli.tui.payload import read_count, read_items, read_rows
from homarus.core.message import Json

RunState: TypeAlias = Literal["running", "done", "stopped", "failed"]


class StreamedRun:
    """Collects the blocks of one run from its events."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.blocks: list[Block] = []
        self.tools: dict[str, ToolBlock] = {}  # also those whose block the history has
        self.state: RunState = "running"
        self.error = self.notice = ""
        self.is_stale = False  # the connection was lost: it may have ended without an event
        self.started_ms = 0
        self._failed_after: str | None = None  # the last message of the history at that time
        self._closed_text = ""  # of the last text block that is complete
        self._count = 0

    @property
    def text(self) -> str:
        """The last text, which is still being written."""
        last = self.blocks[-1] if self.blocks else None
        return last.text if isinstance(last, AnswerBlock) else ""

    def get_blocks(self) -> list[Block]:
        """Return what is shown of the run, with its notice or error at the end."""
        note = self.error if self.state == "failed" else self.notice
        if not note and self.state == "stopped":
            return [*self.blocks, NoteBlock(f"{self.run_id}-end", "Stopped.", "warning")]
        if not note:
            return self.blocks
        tone: Literal["error", "warning"] = "error" if self.state == "failed" else "warning"
        return [*self.blocks, NoteBlock(f"{self.run_id}-end", note, tone)]

    def handle(self, payload: Mapping[str, Json]) -> None:
        """Handle an `agent` event."""
        data, at_ms = payload.get("data"), read_count(payload.get("ts"))
        if not isinstance(data, dict):
            return
        self.started_ms = self.started_ms or at_ms
        match payload.get("stream"):
            case "assistant":
                self.set_text(str(data.get("text") or ""))
                for path in read_items(data.get("mediaUrls")):
                    self.blocks.append(NoteBlock(self._new_key(), f"📎 {path}"))
            case "thinking":
                self._set_thinking(str(data.get("text") or ""))
            case "tool":
                self._handle_tool(data, at_ms)
            case "compaction":
                is_start = data.get("phase") == "start"
                self.notice = "Summarising earlier messages…" if is_start else ""
            case "lifecycle":
                self._handle_lifecycle(data)
            case "error" if message := str(data.get("message") or ""):
                self.notice = message
            case _:
                pass

    def set_text(self, text: str) -> None:
        """Show the complete text of the message that is being written."""
        last = self.blocks[-1] if self.blocks else None
        if isinstance(last, AnswerBlock):
            if not last.text.startswith(text):
                self.blocks[-1] = replace(last, text=text)
        elif text.strip() and not self._closed_text.startswith(text):  # else it arrives late
            self.blocks.append(AnswerBlock(self._new_key(), text, is_live=True))

    def catch_up(self, text: str) -> None:
        """Use the text of a `chat` delta, where the stream was not received from its start."""
        if not self.text:
            self.set_text(text)

    def end(self, state: RunState, error: str = "") -> None:
        """Record how the run ended; what it left running is not running any more."""
        self.state, self.error, self.notice = state, error, ""
        ended = [
            replace(each, is_running=False)
            if isinstance(each, ToolBlock)
            else replace(each, is_live=False)
            if isinstance(each, AnswerBlock | ThinkingBlock)
            else each
            for each in self.blocks
        ]
        self.blocks = list(ended)
        self.tools = {name: replace(each, is_running=False) for name, each in self.tools.items()}

    def prune(self, messages: Sequence[Mapping[str, Json]]) -> None:
        """Leave out the blocks that the history has."""
        called = {
            str(part.get("id"))
            for message in messages
            for part in read_rows(message.get("content"))
            if part.get("type") == "toolCall"
        }
        saved = [
            place
            for place, block in enumerate(self.blocks)
            if isinstance(block, ToolBlock) and block.call_id in called
        ]
        self.blocks = self.blocks[saved[-1] + 1 :] if saved else self.blocks
        last = messages[-1] if messages else {}
        if self.text and last.get("role") == "assistant" and text_of(last) == self.text:
            self._closed_text = self.text
            self.blocks = []

    def is_settled(self, newest: Sequence[Mapping[str, Json]]) -> bool:
        """Return whether the run has ended and the history has its answer."""
        if self.state == "running":
            return False
        last = newest[-1] if newest else {}
        if self.state != "failed" or last.get("errorMessage"):
            return True
        if self._failed_after is None:
            self._failed_after = id_of(last)
        return self._failed_after != id_of(last)  # the conversation went on

    def _set_thinking(self, text: str) -> None:
        last = self.blocks[-1] if self.blocks else None
        if isinstance(last, ThinkingBlock):
            self.blocks[-1] = replace(last, text=text)
        elif text.strip():
            self.blocks.append(ThinkingBlock(self._new_key(), text, is_live=True))

    def _handle_tool(self, data: Mapping[str, Json], at_ms: int) -> None:
        self._closed_text = self.text or self._closed_text
        call_id = str(data.get("toolCallId"))
        known = self.tools.get(call_id)
        block = known or self._new_tool(data, at_ms)
        if data.get("phase") == "update":
            block = replace(block, output=_output(data.get("partialResult"), block.output))
        elif data.get("phase") == "result":
            block = replace(
                block,
                output=_output(data.get("result"), block.output),
                is_error=bool(data.get("isError")),
                is_running=False,
                ended_ms=at_ms,
            )
        self.tools[call_id] = block
        for place, each in enumerate(self.blocks):
            if isinstance(each, ToolBlock) and each.call_id == call_id:
                self.blocks[place] = block
                return
        if known is None:
            self.blocks.append(block)

    def _new_tool(self, data: Mapping[str, Json], at_ms: int) -> ToolBlock:
        args = data.get("args")
        return ToolBlock(
            self._new_key(),
            str(data.get("toolCallId")),
            str(data.get("name")),
            args if isinstance(args, dict) else {},
            is_running=True,
            started_ms=at_ms,
        )

    def _handle_lifecycle(self, data: Mapping[str, Json]) -> None:
        if data.get("phase") == "start":
            self.notice = ""
        elif data.get("phase") == "fallback":  # what the failed call wrote is discarded
            tools = [n for n, each in enumerate(self.blocks) if isinstance(each, ToolBlock)]
            self.blocks = self.blocks[: tools[-1] + 1] if tools else []
            error = data.get("error") or data.get("reason") or ""
            self.notice = f"{data.get('provider')}/{data.get('model')} failed: {error}"

    def _new_key(self) -> str:
        self._count += 1
        return f"{self.run_id}-{self._count}"


def _output(result: Json, before: str | None) -> str | None:
    return before if not isinstance(result, dict) else text_of(result)
