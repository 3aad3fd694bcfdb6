"""What a run works with: its merged messages, and the model that is meant."""

import asyncio
from dataclasses import replace
from pathlib import Path

from homarus.agent.run_setup import merge_messages
from homarus.core.message import Address, Inbound, InboundMetadata, Media, RunOptions
from homarus.sessions.envelope import MULTIPLE_SENDERS
from homarus.store.journal import InboxRecord
from homarus.testing.fakes import assistant_message
from tests.unit.agent.harness import KEY, Harness, message


def record(text: str, sender: str, name: str, **fields: object) -> InboxRecord:
    metadata = InboundMetadata(kind="group", name=name, handle=name)
    media = (Media("image", path=f"/m/{text}.png"),) if fields.get("media") else ()
    before = str(fields.get("before", ""))
    at = Address("telegram", "-100")
    inbound = Inbound(text, at, sender, text, metadata=metadata, media=media, group_history=before)
    return InboxRecord(text, "s", "telegram", "default", text, sender, text, 1, inbound=inbound)


def test_merge_messages_single_message_is_unchanged() -> None:
    only = record("hi", "42", "Ann", media=True, before="Bob (7): x")
    assert merge_messages([only], "") == only.inbound


def test_merge_messages_of_one_sender_keeps_sender_and_files() -> None:
    records = [
        record("a", "42", "Ann", media=True, before="1"),
        record("b", "42", "Ann", media=True),
    ]
    merged = merge_messages([*records, record("c", "42", "Ann", before="2")], "a\nb\nc")
    assert (merged.sender, merged.metadata.name, merged.text) == ("42", "Ann", "a\nb\nc")
    assert [one.path for one in merged.media] == ["/m/a.png", "/m/b.png"]
    assert merged.group_history == "1\n2"


def test_merge_messages_of_several_senders_has_no_sender() -> None:
    merged = merge_messages(
        [record("a", "42", "Ann"), record("b", "7", "Bob")], "Ann (42): a\nBob (7): b"
    )
    assert (merged.sender, merged.metadata.name, merged.metadata.handle) == (
        MULTIPLE_SENDERS,
        "",
        "",
    )
    dropped = record("", "7", "Bob")  # of which only a summary line is left
    assert (
        merge_messages([record("a", "42", "Ann"), dropped], "[Queue overflow]\n\na").sender == "42"
    )


def test_run_model_named_by_a_person_is_exact(tmp_path: Path) -> None:
    harness = Harness(tmp_path, *(assistant_message("hello") for _ in range(3)))
    harness.run(message())
    harness.run(replace(message(options=RunOptions(model="q/n")), id="2", run_id="r2"))

    async def choose() -> None:
        await (await harness.sessions.load(KEY, "main")).set_model("q", "s")

    asyncio.run(choose())
    harness.run(replace(message(), id="3", run_id="r3"))
    assert [(one.ref, one.exact) for one in harness.selections] == [
        ("p/m", False),
        ("q/n", True),
        ("q/s", True),
    ]
