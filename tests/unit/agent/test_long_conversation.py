"""Two hundred turns with more than ten compactions: nothing is lost, every request fits."""

import random
from collections.abc import Awaitable, Callable, Sequence

import pytest

from homarus.agent.context import compaction
from homarus.agent.context.render import NOT_RENDERED, RenderedContext, RenderParams, render
from homarus.agent.context.summarizer import SummaryRequest
from homarus.agent.context.tokens import fixed_tokens
from homarus.config import schema
from homarus.core.errors import ContextOverflowError, OverloadedError
from homarus.core.message import Message, Origin, Text, ToolCall, ToolResult, Usage, user_message
from homarus.sessions import transcript
from homarus.sessions.transcript import NewEntry
from homarus.store.base import TranscriptEntry
from tests.unit.agent.builders import as_bytes

WINDOW = 12_000
SYSTEM = "You are a helpful lobster. " * 60
FACT = "By the way, my locker at the pool is number 7731-K."
RULES = schema.CompactionConfig()


def count(messages: Sequence[Message]) -> int:
    """Return the vendor's count: a little more than our estimate."""
    return round((len(SYSTEM) + len(as_bytes(messages))) / 3.6)


async def faithful(ask: SummaryRequest) -> str:
    """A model that summarises what was said about the locker."""
    lines = [line for line in ask.text.splitlines() if "locker" in line]
    return "## Facts\n" + "\n".join(dict.fromkeys(f"- {line[:120]}" for line in lines))


async def forgetful(_ask: SummaryRequest) -> str:
    return "## Done\n- some things were said"


async def failing(_ask: SummaryRequest) -> str:
    raise OverloadedError("busy")


async def narrow(ask: SummaryRequest) -> str:
    """A model with a smaller window than configured."""
    if len(ask.text) > 6_000:
        raise ContextOverflowError("too long")
    return await forgetful(ask)


class Conversation:
    """A growing transcript, and what a model is sent of it."""

    def __init__(self, summarise: Callable[[SummaryRequest], Awaitable[str]]) -> None:
        self.summarise = summarise
        self.entries: list[TranscriptEntry] = []
        self.messages: list[Message] = []
        self.view: RenderedContext = NOT_RENDERED
        self.params = RenderParams("m", WINDOW, fixed=fixed_tokens(SYSTEM, ()))
        self.compactions: list[compaction.CompactionResult] = []
        self.sent = b""  # the request before this one
        self.broken = 0  # how often a request did not extend the one before it
        self.now_ms = 0

    def add(self, item: Message | NewEntry) -> None:
        self.now_ms += 1_000
        draft = transcript.message_draft(item, self.now_ms) if isinstance(item, Message) else item
        parent = self.entries[-1].id if self.entries else None
        taken = {entry.id for entry in self.entries}
        entry = draft.at(transcript.new_id(taken), parent, self.now_ms)
        self.entries.append(entry)
        if isinstance(item, Message):
            read = transcript.decode_message(entry)
            assert read
            self.messages.append(read)

    async def ask(self) -> int:
        """Return the tokens of a request, after compaction if needed."""
        for attempt in range(compaction.MAX_PER_TURN + 1):
            self.view = render(self.messages, self.params, self.view, self.now_ms)
            budget = compaction.token_budget(RULES, self.view)
            if not compaction.is_due(self.view, budget):
                break
            assert attempt < compaction.MAX_PER_TURN
            await self.compact(budget)
        now = as_bytes(self.view.messages)
        self.broken += not now.startswith(self.sent)
        self.sent = now
        return count(self.view.messages)

    async def compact(self, budget: compaction.TokenBudget) -> None:
        lines = transcript.context_messages(self.entries)
        done = await compaction.compact_messages(lines, budget=budget, summarise=self.summarise)
        self.compactions.append(done)
        self.add(done.to_entry())
        self.messages = transcript.pair_calls(transcript.messages_of(self.entries))
        self.sent = b""

    async def turn(self, number: int, words: random.Random) -> None:
        text = " ".join(words.choices(["sea", "sand", "Nora", "boat", "42", "the"], k=60))
        opening = FACT if number == 3 else f"What about order ORD-{number}-X?"
        self.add(user_message(f"{opening} {text}"))
        for step in range(number % 3):
            prompt = await self.ask()
            assert prompt <= WINDOW
            call = ToolCall(f"c{number}.{step}", "exec", {"command": f"ls {number}"})
            self.add(self.answer("one moment", prompt, call))
            out = Text("line of output\n" * words.randrange(1, 900))
            self.add(Message("tool", (ToolResult(call.id, "exec", (out,)),)))
        prompt = await self.ask()
        assert prompt <= WINDOW
        self.add(self.answer(f"answer {number}: {text}", prompt))

    def answer(self, text: str, prompt: int, *calls: ToolCall) -> Message:
        origin = Origin("api", "p", "m", usage=Usage(input=prompt, output=100))
        return Message("assistant", (Text(text), *calls), self.now_ms + 1_000, origin)


@pytest.mark.parametrize("summarise", [faithful, forgetful, failing, narrow])
async def test_session_of_two_hundred_turns_survives_compactions(
    summarise: Callable[[SummaryRequest], Awaitable[str]],
) -> None:
    conversation, words = Conversation(summarise), random.Random(7)
    seen: list[TranscriptEntry] = []
    for number in range(200):
        await conversation.turn(number, words)
        assert conversation.entries[: len(seen)] == seen, "what is written stays as it was written"
        seen[:] = conversation.entries
    assert len(conversation.compactions) >= 10
    assert conversation.broken == 0, "between two compactions a prompt only grows at its end"
    assert b"7731-K" in conversation.sent, "what was said in turn 3 is still in sight"
    raw = [m for entry in conversation.entries if (m := transcript.decode_message(entry))]
    assert any(FACT in m.text for m in raw), "and can be read and searched as it was said"
    for done in conversation.compactions:
        assert done.tokens_after <= done.tokens_before * 0.9
        assert done.tokens_after <= WINDOW
    assert len({entry.id for entry in conversation.entries}) == len(conversation.entries)
