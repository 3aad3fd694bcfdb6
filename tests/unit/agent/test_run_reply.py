"""The reply of a run: live display, outbox records by block or at the end, or none."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from homarus.agent.reply.builder import make_reply_builder
from homarus.config import schema
from homarus.core.errors import (
    OverloadedError,
)
from homarus.core.message import (
    Address,
    Extras,
    Inbound,
    Media,
    Outbound,
    ToolCall,
)
from homarus.plugins.hooks import hook
from homarus.plugins.values import Refusal
from homarus.policy.workspace_access import WorkspaceAccess
from homarus.providers.base import Provider
from homarus.providers.catalog import ModelInfo
from homarus.providers.model_router import ModelSelection
from homarus.store.journal import OutboxRecord
from homarus.testing.fakes import ScriptedProvider, assistant_message
from homarus.tools.registry import ToolRegistry
from homarus.tools.tool import Messenger, ToolContext, tool
from tests.unit.agent.harness import KEY, Harness, make_interrupted_record, message


class Shown:
    """A live reply that records its calls; `message_id` is its preview message."""

    def __init__(self, message_id: str = "") -> None:
        self.message_id, self.calls = message_id, list[str]()
        self.look: Callable[[], str] = str
        self.seen: list[str] = []

    def present(
        self, asked: Sequence[Inbound], run: str, look: Callable[[], str], interval_s: float
    ) -> "Shown":
        self.calls.append(f"show {run} to {','.join(one.id for one in asked)} {interval_s:g}")
        self.look = look
        return self

    def update(self, *, typing: bool | None) -> None:
        if typing and "typing" not in self.calls:
            self.calls.append("typing")
        if (text := self.look()) and text not in self.seen:
            self.seen.append(text)

    async def pause(self) -> str:
        self.calls.append("hold")
        return self.message_id

    def resume(self, *, taken: bool) -> None:
        self.calls.append("taken" if taken else "released")
        if taken:
            self.message_id = ""

    def close(self) -> None:
        self.calls.append("close")


def replies(harness: Harness) -> list[tuple[str, str]]:
    found = asyncio.run(harness.store.journal.outbox_records())
    return [(parcel.id, parcel.text) for parcel in found]


def streaming(harness: Harness, **defaults: object) -> None:
    """Switch block streaming on."""
    config = schema.Config.model_validate(
        {"agents": {"defaults": {"blockStreamingDefault": "on", **defaults}}}
    )
    harness.replace_services(
        make_builder=lambda session, inbound, thinking, _new: make_reply_builder(
            config, session, inbound, thinking=thinking
        )
    )


def switch_off(harness: Harness) -> None:
    async def off() -> None:
        await (await harness.sessions.load(KEY, "main")).update(sendPolicy="deny")

    asyncio.run(off())


LS = ToolCall("c", "ls", {})


def test_live_reply_is_replaced_by_first_outbox_record(
    tmp_path: Path,
) -> None:
    shown = Shown("p1")
    harness = Harness(
        tmp_path, assistant_message("On it.", LS), assistant_message("A first line\nand a second.")
    )
    harness.replace_services(start_live_reply=shown.present)
    assert harness.run(message()).status == "answered"
    assert shown.calls == ["show r1 to 1 6", "typing", "hold", "taken", "close"]
    assert shown.seen == [
        "On it.", "On it.\n\nA first line", "On it.\n\nA first line\nand a second.",
    ]  # fmt: skip
    found = asyncio.run(harness.store.journal.outbox_records())
    assert [(one.text, one.extras.replaces) for one in found] == [
        ("On it.", "p1"),
        ("A first line\nand a second.", ""),
    ]


def test_live_reply_is_replaced_by_error(tmp_path: Path) -> None:
    shown = Shown("p1")
    harness = Harness(tmp_path, OverloadedError("busy"))
    harness.replace_services(start_live_reply=shown.present)
    harness.run(message())
    (parcel,) = asyncio.run(harness.store.journal.outbox_records())
    assert parcel.extras.replaces == "p1" and shown.calls[-2:] == ["taken", "close"]


def test_live_reply_silent_answer_replaces_nothing(tmp_path: Path) -> None:
    shown = Shown("p1")
    harness = Harness(tmp_path, assistant_message("NO_REPLY"))
    harness.replace_services(start_live_reply=shown.present)
    harness.run(message())
    assert shown.calls == ["show r1 to 1 6", "typing", "close"] and shown.seen == []


def test_muted_session_gets_no_reply_and_no_typing(tmp_path: Path) -> None:
    shown = Shown()
    harness = Harness(tmp_path, assistant_message("words"), OverloadedError("busy"))
    harness.replace_services(start_live_reply=shown.present)
    switch_off(harness)
    harness.run(message())
    assert (harness.record().state, harness.replies(), shown.calls) == ("silent", [], [])
    harness.run(replace(message(), id="2", run_id="r2"))
    assert (harness.record("r2").state, harness.replies()) == ("reported", [])


def test_block_streaming_sends_text_when_message_is_saved(tmp_path: Path) -> None:
    sent: list[list[str]] = []

    class Watcher:
        @hook
        async def before_tool_call(self) -> None:
            sent.append([one.text for one in await harness.store.journal.outbox_records()])

    harness = Harness(tmp_path, assistant_message("On it.", LS), assistant_message("Done."))
    streaming(harness)
    harness.hooks.register(Watcher(), "watcher")
    assert harness.run(message()).status == "answered"
    assert sent == [["On it."]]
    assert replies(harness) == [("r1:0", "On it."), ("r1:1", "Done.")]


def test_block_streaming_resumed_run_sends_nothing_twice(
    tmp_path: Path,
) -> None:
    harness = Harness(tmp_path, assistant_message("And on.", LS), assistant_message("Done."))
    streaming(harness)
    record = make_interrupted_record(harness, assistant_message("On it.", LS))
    asyncio.run(harness.runs.start(KEY, [record]))
    assert replies(harness) == [("r1:10000", "And on."), ("r1:10001", "Done.")]
    assert harness.record().state == "answered"


def test_block_streaming_retried_message_is_answered(tmp_path: Path) -> None:
    """It was parked after it had sent something; its attempts restart at zero."""
    harness = Harness(tmp_path, assistant_message("Done."))
    streaming(harness)
    make_interrupted_record(harness, assistant_message("On it.", LS))

    async def main() -> None:
        journal = harness.store.journal
        async with journal.lease(f"session:{KEY}") as lease, journal.transaction() as transaction:
            transaction.enqueue(OutboxRecord("r1:0", "r1", Address("test", "1"), "On it.", 0, 10))
            transaction.mark_running(["r1"], lease, run="r1")
            transaction.settle(["r1"], lease, "parked", at_ms=1)
        assert await journal.retry("r1", at_ms=2)
        record = await journal.inbox_record("r1")
        assert record is not None and not record.attempts
        await harness.runs.start(KEY, [record])

    asyncio.run(main())
    assert (harness.record().state, harness.replies()) == ("answered", ["On it.", "Done."])


def test_live_reply_of_resumed_run_uses_attempt_name(
    tmp_path: Path,
) -> None:
    """A service that dedupes by key would return the old message, and it would be overwritten."""
    for by_block, name in ((True, "r1:2"), (False, "r1")):
        shown, harness = Shown(), Harness(tmp_path, assistant_message("Done."))
        if by_block:
            streaming(harness)
        harness.replace_services(start_live_reply=shown.present)
        record = make_interrupted_record(harness, assistant_message("On it.", LS))
        asyncio.run(harness.runs.start(KEY, [record]))
        assert shown.calls[0] == f"show {name} to 1 6"


def test_live_reply_with_sending_hook_shows_no_preview(tmp_path: Path) -> None:
    class Censor:
        @hook
        def message_sending(self, outbound: Outbound) -> Refusal | None:
            return Refusal("no") if outbound.text == "On it." else None

    shown, harness = (
        Shown("p1"),
        Harness(tmp_path, assistant_message("On it.", LS), assistant_message("Done.")),
    )
    streaming(harness)
    harness.replace_services(start_live_reply=shown.present)
    harness.hooks.register(Censor(), "censor")
    harness.run(message())
    assert shown.seen == [] and harness.replies() == ["Done."]
    assert shown.calls[2:] == ["hold", "released", "hold", "taken", "close"]


def test_resumed_run_without_streaming_sends_earlier_text(tmp_path: Path) -> None:
    harness = Harness(tmp_path, assistant_message("Done."))
    record = make_interrupted_record(harness, assistant_message("On it.", LS))
    asyncio.run(harness.runs.start(KEY, [record]))
    assert replies(harness) == [("r1:0", "On it."), ("r1:1", "Done.")]


def test_block_streaming_silent_end_after_text_is_answered(tmp_path: Path) -> None:
    harness = Harness(tmp_path, assistant_message("On it.", LS), assistant_message("NO_REPLY"))
    streaming(harness)
    harness.run(message())
    assert (harness.record().state, harness.replies()) == ("answered", ["On it."])


def test_human_delay_sets_not_before_of_later_blocks(tmp_path: Path) -> None:
    harness = Harness(
        tmp_path,
        assistant_message("One.", LS),
        assistant_message("Two.", LS),
        assistant_message("Three."),
    )
    streaming(harness, humanDelay={"mode": "custom", "minMs": 1_000, "maxMs": 1_000})
    harness.run(message())
    first, second, third = asyncio.run(harness.store.journal.outbox_records())
    now_ms = harness.clock.now_ms()
    assert first.not_before_ms == 0
    assert second.not_before_ms <= now_ms + 1_000 <= third.not_before_ms <= now_ms + 2_000


class Post:
    """A messenger that finds every file."""

    async def attach(
        self, names: Sequence[str], workspace: Path, access: WorkspaceAccess
    ) -> tuple[Media, ...]:
        return tuple(Media(name=name, path=f"{workspace}/{name}") for name in names)


def test_reply_tags_become_extras_of_outbox_record(tmp_path: Path) -> None:
    harness = Harness(
        tmp_path,
        assistant_message("[[reply_to_current]] Look.\nMEDIA:./a.png", LS),
        assistant_message("[[reply_to:77]] [[audio_as_voice]]\nMEDIA:./b.ogg"),
    )
    harness.replace_services(messenger=cast("Messenger", Post()))
    harness.run(message())
    first, second = [one.extras for one in asyncio.run(harness.store.journal.outbox_records())]
    assert first == Extras(reply_to="1", media=(Media(name="./a.png", path=f"{tmp_path}/./a.png"),))
    assert (second.reply_to, second.as_voice, len(second.media)) == ("77", True, 1)


def test_reply_uses_settings_of_its_channel(tmp_path: Path) -> None:
    harness = Harness(tmp_path, assistant_message("On it.", LS), assistant_message("Done."))
    config = schema.Config.model_validate(
        {
            "channels": {
                "test": {
                    "responsePrefix": "wrong",
                    "accounts": {"Default": {"responsePrefix": "[bot]", "blockStreaming": True}},
                }
            }
        }
    )
    harness.replace_services(
        make_builder=lambda session, inbound, thinking, _new: make_reply_builder(
            config, session, inbound, thinking=thinking
        )
    )
    harness.run(message())
    assert harness.replies() == ["[bot] On it.", "[bot] Done."]


async def test_run_sends_turns_up_to_channel_limit(tmp_path: Path) -> None:
    key = "agent:main:test:direct:1"
    harness = Harness(
        tmp_path, assistant_message("one"), assistant_message("two"), assistant_message("three")
    )
    config = schema.Config.model_validate({"channels": {"test": {"dmHistoryLimit": 1}}})
    harness.replace_services(get_config=lambda: config)
    for number in range(3):
        asked = replace(message(f"q{number}"), id=str(number), run_id=f"r{number}")
        record = (await harness.store.journal.accept(key, asked, at_ms=1)).record
        await harness.runs.start(key, [record])
    assert isinstance(harness.provider, ScriptedProvider)
    sent = [[part.text for part in request.messages] for request in harness.provider.requests]
    assert sent == [["q0"], ["q1"], ["q2"]]


def looking(folder: Path) -> tuple[Harness, list[ToolContext]]:
    """Run a tool, and check its context."""
    steering: list[ToolContext] = []

    @tool(group="test", name="look")
    async def look(ctx: ToolContext) -> str:
        """Look around."""
        steering.append(ctx)
        return "seen"

    harness = Harness(
        folder, assistant_message(ToolCall("c9", "look", {})), assistant_message("done")
    )
    harness.replace_services(get_tools=lambda _agent: ToolRegistry([look]))
    return harness, steering


def test_tool_context_has_address_and_messenger(tmp_path: Path) -> None:
    harness, steering = looking(tmp_path)
    harness.run(message())
    (ctx,) = steering
    assert (ctx.here, ctx.message_id, ctx.run_id, ctx.call_id, ctx.messenger) == (
        Address("test", "1"), "1", "r1", "c9", None,
    )  # fmt: skip


def test_resumed_run_error_uses_new_outbox_ids(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    streaming(harness)
    record = make_interrupted_record(harness, assistant_message("On it.", LS))

    async def no_road(_wish: ModelSelection) -> tuple[Provider, ModelInfo]:
        raise OverloadedError("busy")

    harness.replace_services(connect=no_road)
    asyncio.run(harness.runs.start(KEY, [record]))
    ((reply_id, _),) = replies(harness)
    assert (reply_id, harness.record().state) == ("r1:10000", "reported")


def test_muted_session_has_no_messenger(tmp_path: Path) -> None:
    harness, steering = looking(tmp_path)
    harness.replace_services(messenger=cast("Messenger", Post()))
    switch_off(harness)
    harness.run(message())
    assert steering[0].messenger is None
