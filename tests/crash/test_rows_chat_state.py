"""What is remembered of chats, and files under way, when the gateway is killed: rows 104 to 106.

The gateway is the real one, with our fake of Telegram, which knows what was asked of it and which
reactions stand.
"""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast

import pytest

from homarus.store.chat_records import ChatRecord, ChatRecordKind
from homarus.testing.model_server import Say
from homarus.testing.telegram_server import TelegramServer
from tests.contract.channel_peers import TelegramPeer
from tests.contract.channel_stage import Harness, wait_for
from tests.crash.test_rows_channels import settled

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.parametrize("stage", ["telegram"], indirect=True),
]

SIZE = 5_000
REACTING: Mapping[str, Any] = {"ackReactionScope": "all", "removeAckAfterReply": True}


def peer_of(stage: Harness) -> TelegramPeer:
    assert isinstance(stage.peer, TelegramPeer)
    return stage.peer


def server_of(stage: Harness) -> TelegramServer:
    return peer_of(stage)._server


def on_server(stage: Harness, act: Any) -> Any:
    return peer_of(stage)._host.do(act)


def configure(stage: Harness, **changes: Any) -> None:
    """Change the config before the gateway is started."""
    file = stage.home.state / "openclaw.json"
    stage.home.configure({**json.loads(file.read_text(encoding="utf-8")), **changes})


def asked_of_model(stage: Harness) -> str:
    """Return the last request to the model."""
    return json.dumps(stage.model.requests[-1].body, ensure_ascii=False)


def reactions(stage: Harness) -> dict[int, list[Any]]:
    """Return which of Ann's messages have a reaction of ours."""

    def look() -> dict[int, list[Any]]:
        chats = server_of(stage).world.chats.values()
        return {number: found for chat in chats for number, found in chat.reactions.items()}

    return cast("dict[int, list[Any]]", on_server(stage, look))


def check_answered_with_file(stage: Harness) -> None:
    stage.wait_shown("a fine file")
    wait_for(lambda: settled(stage), "all is settled")
    assert stage.times("a fine file") == 1 and len(stage.rows()) == 1
    assert "media attached" in asked_of_model(stage)
    files = list((stage.home.state / "media" / "inbound").iterdir())
    assert [file.stat().st_size for file in files] == [SIZE]


@pytest.mark.parametrize("fault", ["intake.accepted", "media.fetched"])
def test_row_104_message_with_file_is_answered_once_with_it(stage: Harness, fault: str) -> None:
    stage.start(f"{fault}:kill9")
    stage.model.script([Say("a fine file")])
    peer_of(stage).attach("look at this", SIZE)
    stage.died()
    (row,) = stage.rows()
    assert row.state == "accepted" and row.inbound and not row.inbound.media[0].path
    stage.start()
    check_answered_with_file(stage)


def test_row_104_killed_while_file_downloads_is_answered_once_with_it(stage: Harness) -> None:
    server = server_of(stage)
    on_server(stage, lambda: server.trouble("getFile", wait_s=3_600.0))
    stage.start()
    stage.model.script([Say("and I am here")], [Say("a fine file")])
    peer_of(stage).attach("look at this", SIZE)
    peer_of(stage)._host.wait(lambda: server.until_asked("getFile"))
    # The reader goes on, in another chat, although the offset is past the message with the file.
    stage.peer.write(stage.peer.call("are you there?"), room=True)
    stage.wait_shown("and I am here", room=True)
    assert stage.times("a fine file") == 0
    stage.kill()
    stage.start()
    stage.wait_shown("a fine file")
    wait_for(lambda: settled(stage), "all is settled")
    assert stage.times("a fine file") == 1 and len(stage.rows()) == 2
    assert "media attached" in asked_of_model(stage)


def test_row_105_group_context_survives_kills(stage: Harness) -> None:
    stage.start()
    for number in range(3):
        stage.peer.write(f"the crab is number {number}", room=True)
        wait_for(partial(_has_line, stage, f"number {number}"), "it is remembered")
        stage.kill()
        stage.start()
    stage.model.script([Say("number two")], [Say("nothing new")])
    stage.peer.write(stage.peer.call("which crab?"), room=True)
    stage.wait_shown("number two", room=True)
    assert all(f"the crab is number {number}" in asked_of_model(stage) for number in range(3))
    stage.kill()
    stage.start()
    stage.peer.write(stage.peer.call("and now?"), room=True)
    stage.wait_shown("nothing new", room=True)
    (row,) = [one for one in stage.rows() if "and now" in one.preview]
    assert row.state in {"running", "answered"}
    assert asked_of_model(stage).count("the crab is number 1") == 1  # only in the first question


def _records(stage: Harness, kind: ChatRecordKind) -> Sequence[ChatRecord]:
    return stage._look(lambda store: store.journal.chat_records(kind))


def _has_line(stage: Harness, text: str) -> bool:
    return any(text in str(one.data) for one in _records(stage, "history"))


@pytest.mark.parametrize("fault", ["provider.asked", "reply.saved", "deliver.answered"])
def test_row_106_ack_reaction_is_removed_after_restart(stage: Harness, fault: str) -> None:
    configure(stage, messages=REACTING)
    stage.start(f"{fault}:kill9")
    stage.model.script([Say("the answer")], [Say("the answer")])
    stage.peer.write("a question")
    stage.died()
    stage.start()
    if fault != "deliver.answered":  # there it may not be sent again, and nothing was delivered
        stage.wait_shown("the answer")
    else:
        stage.model._answers.clear()
        stage.model.script([Say("the next answer")])
        stage.peer.write("another question")
        stage.wait_shown("the next answer")
    wait_for(lambda: reactions(stage) and not any(reactions(stage).values()), "they are removed")
    wait_for(lambda: not _records(stage, "ack"), "none is left to be removed")
