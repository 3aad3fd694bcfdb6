"""The Matrix channel on a fake homeserver that fails in ways a real one seldom does."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from homarus.channels.base import (
    ChannelContext,
    SupportsDelete,
    SupportsEdit,
    SupportsMediaFetch,
    SupportsProbe,
    SupportsReactions,
    SupportsTyping,
)
from homarus.channels.matrix import adapter, chat_actions, create
from homarus.channels.matrix import sync as sync_module
from homarus.channels.matrix.settings import MatrixSettings
from homarus.channels.matrix.traits import TRAITS
from homarus.core.chat_action import ChatAction
from homarus.core.clock import SystemClock
from homarus.core.errors import ChannelAuthError, ChannelError, SendError
from homarus.core.message import Address, Extras, Media, Outbound
from homarus.testing.fakes import RecordingHandler
from tests.unit.channels.matrix_server import (
    ME,
    TOKEN,
    Answer,
    Server,
    channel,
    event,
    running,
    serving,
    sync,
)

TO = Address("matrix", "!r")
INVITE = {
    "type": "m.room.member",
    "state_key": ME,
    "sender": "@alice:test",
    "content": {"membership": "invite", "is_direct": True},
}
HTML = b"<html>not what you asked for</html>"


@asynccontextmanager
async def play() -> AsyncIterator[Server]:
    async with serving() as server:
        yield server


def refusal(errcode: str, **more: Any) -> dict[str, Any]:
    return {"errcode": errcode, "error": "so it is", **more}


def test_matrix_capabilities_are_those_of_service() -> None:
    matrix = channel(Server(), homeserver="http://hs.test")
    for ability in (
        SupportsTyping,
        SupportsEdit,
        SupportsDelete,
        SupportsReactions,
        SupportsMediaFetch,
        SupportsProbe,
    ):
        assert isinstance(matrix, ability)
    carries = matrix.capabilities
    assert (carries.dialect, carries.idempotent, carries.text_limit) == ("matrix", True, 4_000)
    assert carries.media_max_bytes == 20 * 1024 * 1024


def test_matrix_settings_change_limits_and_retries() -> None:
    matrix = channel(
        Server(),
        homeserver="http://hs.test",
        textChunkLimit=500,
        mediaMaxMb=1.5,
        retry={"attempts": 7, "minDelayMs": 100, "maxDelayMs": 200, "jitter": 0},
    )
    carries = matrix.capabilities
    assert (carries.text_limit, carries.media_max_bytes) == (500, 1_572_864)
    retry = carries.retry
    assert (retry.attempts, retry.min_delay_s, retry.max_delay_s, retry.jitter) == (7, 0.1, 0.2, 0)


@pytest.mark.parametrize(
    ("answer", "kind", "retryable", "after_s"),
    [
        ((429, refusal("M_LIMIT_EXCEEDED", retry_after_ms=1500)), SendError, True, 1.5),
        ((429, (refusal("M_LIMIT_EXCEEDED"), {"Retry-After": "3"})), SendError, True, 3.0),
        ((429, refusal("M_LIMIT_EXCEEDED", retry_after_ms="soon")), SendError, True, None),
        ((413, refusal("M_TOO_LARGE")), SendError, False, None),
        ((413, HTML), SendError, False, None),
        ((429, (refusal("M_LIMIT_EXCEEDED"), {"Retry-After": "\u00b2"})), SendError, True, None),
        ((403, refusal("M_FORBIDDEN")), SendError, False, None),
        ((400, refusal("M_BAD_JSON")), SendError, False, None),
        ((401, refusal("M_UNKNOWN_TOKEN")), ChannelAuthError, None, None),
        ((401, refusal("M_UNKNOWN_TOKEN", soft_logout=True)), ChannelAuthError, None, None),
        ((403, refusal("M_USER_DEACTIVATED")), ChannelAuthError, None, None),
        # Not the homeserver's JSON: a proxy may answer like this while it is down.
        ((502, HTML), ChannelError, None, None),
        ((404, HTML), ChannelError, None, None),
        ((403, HTML), ChannelError, None, None),
        ((500, refusal("M_UNKNOWN")), ChannelError, None, None),
        ((200, HTML), ChannelError, None, None),
        ((200, [1, 2]), ChannelError, None, None),
        (None, ChannelError, None, None),
    ],
    ids=str,
)
async def test_matrix_errors_map_to_send_outcomes(
    answer: Answer, kind: type[Exception], retryable: bool | None, after_s: float | None
) -> None:
    async with play() as server:
        server.on("PUT /rooms/!r/send/.*", answer)
        matrix = channel(server)
        async with running(matrix, RecordingHandler()):
            with pytest.raises(ChannelError) as caught:
                await matrix.send(Outbound(TO, "private words", "key"))
        error = caught.value
        assert isinstance(error, kind)
        assert isinstance(error, SendError) is (retryable is not None)
        assert getattr(error, "retryable", None) is retryable
        assert getattr(error, "after_s", None) == after_s
        assert "private words" not in str(error) and TOKEN not in str(error)


async def test_matrix_send_while_disconnected_is_retryable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(adapter, "LOGIN_TIMEOUT_S", 0.01)
    async with play() as server:
        with pytest.raises(SendError) as caught:
            await channel(server).send(Outbound(TO, "hello", "key"))
        assert caught.value.retryable and not server.asked


async def test_matrix_same_key_uses_same_transaction_id() -> None:
    async with play() as server:
        matrix = channel(server)
        async with running(matrix, RecordingHandler()):
            for key in ("a", "a", "b"):
                await matrix.send(Outbound(TO, "hello", key))
        first, again, other = (one.path for one in server.seen("PUT /rooms/.*/send/.*"))
        assert first == again != other


async def test_matrix_batch_cursor_is_saved_with_last_message() -> None:
    async with play() as server:
        server.syncs += [
            sync("s1", event("one", "$1"), event("two", "$2"), event("three", "$3")),
            sync("s2"),
            sync("s3", event("four", "$4")),
        ]
        desk = RecordingHandler()
        async with running(channel(server), desk):
            await desk.received(4)
        assert [one.text for one in desk.got] == ["one", "two", "three", "four"]
        assert [kept and kept["since"] for kept in desk.cursors] == ["s0", "s0", "s1", "s3"]


async def test_matrix_sync_resumes_at_cursor() -> None:
    async with play() as server:
        server.syncs = [(200, {"next_batch": "now"}), sync("s8", event("hello"))]
        desk = RecordingHandler(kept={"since": "s7"})
        async with running(channel(server), desk):
            await desk.received(1)
        first, second, *_ = server.seen("GET /sync")
        assert "since" not in first.query and second.query["since"] == "s7"


async def test_matrix_unknown_cursor_is_reset_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with play() as server:
        server.syncs = [
            (200, {"next_batch": "now"}),
            (400, refusal("M_INVALID_PARAM")),
            sync("s2", event("hello")),
        ]
        desk = RecordingHandler(kept={"since": "lost"})
        async with running(channel(server), desk):
            await desk.received(1)
        assert [one.query.get("since") for one in server.seen("GET /sync")][:3] == [
            None,
            "lost",
            "now",
        ]
        server.syncs = [(200, {"next_batch": "now"}), *[(400, refusal("M_INVALID_PARAM"))] * 2]
        with pytest.raises(SendError):
            await channel(server).run(RecordingHandler(kept={"since": "lost"}))
    assert "no longer knows" in caplog.text


@pytest.mark.parametrize(
    "answer", [(200, HTML), (200, {}), (200, {"next_batch": 5}), (500, HTML), None], ids=str
)
async def test_matrix_malformed_sync_response_ends_run(answer: Any) -> None:
    async with play() as server:
        server.syncs = [answer]
        with pytest.raises(ChannelError) as caught:
            await channel(server).run(RecordingHandler())
        assert not isinstance(caught.value, ChannelAuthError)


async def test_matrix_malformed_items_are_skipped() -> None:
    async with play() as server:
        odd = {
            "next_batch": "s1",
            "account_data": [1],
            "rooms": {
                "join": {"!a": None, "!b": {"timeline": {"events": [1, None, {}]}}, "!c": [1]},
                "invite": {"!d": 1, "!e": {"invite_state": {"events": [{}, 2]}}},
                "leave": {"!f": 3},
            },
        }
        server.syncs += [
            (200, odd),
            (200, {"next_batch": "s2", "rooms": []}),
            sync("s3", event("x")),
        ]
        desk = RecordingHandler()
        async with running(channel(server), desk):
            await desk.received(1)


async def test_matrix_gap_is_filled_up_to_bound(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync_module, "MAX_PAGES", 3)
    async with play() as server:
        pages = iter(range(1_000))

        def page(_asked: Any) -> tuple[int, Any]:
            number = next(pages)
            if number == 1:  # nothing in it that we requested
                return 200, {"chunk": [], "end": f"p{number}"}
            chunk = [event(f"old {number}", f"$old{number}"), event("older", f"$older{number}")]
            return 200, {"chunk": chunk, "end": f"p{number}"}

        server.on("GET /rooms/!r/messages", page)
        first = {"next_batch": "s0", "rooms": {"join": {"!r": {}}}}
        server.syncs = [(200, first), sync("s1", event("new"), limited=True, prev_batch="p")]
        desk = RecordingHandler()
        async with running(channel(server), desk):
            got = await desk.received(5)
        assert [one.id for one in got] == ["$older2", "$old2", "$older0", "$old0", "$1"]
        asked = server.seen("GET /rooms/!r/messages")
        assert [one.query["from"] for one in asked] == ["p", "p0", "p1"]
        assert all(one.query["to"] == "s0" and one.query["dir"] == "b" for one in asked)
    assert "what is older is not read" in caplog.text


@pytest.mark.parametrize(("answer", "tries"), [((403, refusal("M_FORBIDDEN")), 1), (None, 3)])
async def test_matrix_room_with_failing_history_does_not_block_others(
    answer: Answer, tries: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with play() as server:
        server.on("GET /rooms/!r/messages", answer)
        matrix, desk = channel(server), RecordingHandler(kept={"since": "s0"})
        first = (200, {"next_batch": "now", "rooms": {"join": {"!r": {}}}})
        for _ in range(tries - 1):
            server.syncs = [first, sync("s1", event("new"), limited=True, prev_batch="p")]
            with pytest.raises(ChannelError):
                await matrix.run(desk)
        server.syncs = [first, sync("s1", event("new"), limited=True, prev_batch="p")]
        async with running(matrix, desk):
            await desk.received(1)
        assert len(server.seen("GET /rooms/!r/messages")) == tries
        assert [one.text for one in desk.got] == ["new"]
    assert "is not read" in caplog.text


async def test_matrix_new_room_skips_messages_before_join() -> None:
    async with play() as server:
        server.on("GET /rooms/!r/messages", (200, {"chunk": [event("old", "$old")], "end": ""}))
        server.syncs += [
            sync("s1", event("history"), limited=True, prev_batch="p"),
            sync("s2", event("now", "$now")),
        ]
        desk = RecordingHandler()
        async with running(channel(server), desk):
            await desk.received(1)
        assert [one.id for one in desk.got] == ["$now"]


async def test_matrix_optional_request_failure_does_not_stop_sync(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with play() as server:
        for what in ("POST /rooms/.*/receipt/.*", "POST /join/.*", "GET /rooms/.*/event/.*"):
            server.on(what, (500, HTML))
        server.on("GET /rooms/!r/joined_members", (403, refusal("M_FORBIDDEN")))
        invited = {"invite": {"!new": {"invite_state": {"events": [INVITE]}}}}
        answers = event("to that", "$2")
        answers["content"]["m.relates_to"] = {"m.in_reply_to": {"event_id": "$gone"}}
        server.syncs += [(200, {"next_batch": "s1", "rooms": invited})]
        server.syncs += [sync("s2", event("one", "$1")), sync("s3", answers)]
        desk = RecordingHandler()
        async with running(channel(server), desk):
            one, two = await desk.received(2)
            await server.until("POST /join/!new")
            await server.until("POST /rooms/.*/receipt/.*")
        assert one.metadata.kind == "group"  # the number of members is unknown
        assert two.metadata.reply_to == "$gone" and not two.metadata.replies_to_us
    assert "could not be joined" in caplog.text and "cannot be had" in caplog.text


async def test_matrix_invite_is_retried_when_server_is_busy() -> None:
    async with play() as server:
        busy: list[tuple[int, Any]] = [
            (429, refusal("M_LIMIT_EXCEEDED", retry_after_ms=1)),
            (200, {}),
        ]
        server.on("POST /join/!new", lambda _asked: busy.pop(0))
        server.on("PUT /user/.*/account_data/m.direct", (200, {}))
        rooms = {"invite": {"!new": {"invite_state": {"events": [INVITE]}}}}
        server.syncs += [(200, {"next_batch": "s1", "rooms": rooms})]
        async with running(channel(server), RecordingHandler()):
            (noted,) = await server.until("PUT /user/.*/account_data/m.direct")
        assert noted.data == {"@alice:test": ["!new"]}
        assert len(server.seen("POST /join/!new")) == 2


async def test_matrix_direct_flag_is_known_before_join_arrives() -> None:
    async with play() as server:
        rooms = {"invite": {"!new": {"invite_state": {"events": [INVITE]}}}}
        named = {"type": "m.room.name", "state_key": "", "content": {"name": "Talk"}}
        server.syncs += [(200, {"next_batch": "s1", "rooms": rooms})]
        server.syncs += [sync("s2", INVITE, named, event("psst"), room="!new")]
        server.on("POST /join/!new", (429, refusal("M_LIMIT_EXCEEDED", retry_after_ms=10**8)))
        desk = RecordingHandler()
        async with running(channel(server), desk):
            (inbound,) = await desk.received(1)
        assert inbound.metadata.kind == "direct"


async def test_matrix_old_server_uses_old_media_path() -> None:
    async with play() as server:
        server.on("GET /_matrix/media/v3/download/a/b", (200, b"bytes"))
        server.on("GET /_matrix/client/v1/media/config", (404, refusal("M_UNRECOGNIZED")))
        server.on("GET /_matrix/media/v3/config", (200, {"m.upload.size": 77}))
        matrix = channel(server)
        async with running(matrix, RecordingHandler()):
            assert matrix.capabilities.media_max_bytes == 77
            assert await matrix.fetch(Media(ref="mxc://a/b"), 5) == b"bytes"
            for ref in ("mxc://a", "https://a/b", "mxc://a/b/c", "", "mxc:///b", "mxc://a/.."):
                with pytest.raises(ChannelError):
                    await matrix.fetch(Media(ref=ref), 5)


async def test_matrix_failed_upload_sends_nothing(tmp_path: Path) -> None:
    async with play() as server:
        file = tmp_path / "a.txt"
        file.write_text("words")
        message = Outbound(TO, "", "key", Extras(media=(Media(path=str(file)),)))
        matrix = channel(server)
        async with running(matrix, RecordingHandler()):
            for answer in ((200, {}), (502, HTML), (429, refusal("M_LIMIT_EXCEEDED"))):
                server.on("POST /_matrix/media/v3/upload", answer)
                with pytest.raises(ChannelError):
                    await matrix.send(message)
        assert not server.seen("PUT /rooms/.*")


async def test_matrix_revoked_token_logs_in_again_with_password(tmp_path: Path) -> None:
    async with play() as server:
        tokens = iter(["first", "second"])

        def login(_asked: Any) -> tuple[int, Any]:
            return 200, {"access_token": next(tokens), "device_id": "DEVICE", "user_id": ME}

        def whoami(asked: Any) -> tuple[int, Any]:
            if asked.headers["authorization"] == "Bearer gone":
                return 401, refusal("M_UNKNOWN_TOKEN")
            return 200, {"user_id": ME}

        server.on("POST /login", login)
        server.on("GET /account/whoami", whoami)
        given = {"homeserver": server.url, "userId": ME, "password": "pass word"}
        place = ChannelContext("matrix", "work", SystemClock(), state=tmp_path)
        matrix = create(place, MatrixSettings.read(given))
        server.syncs.append((401, refusal("M_UNKNOWN_TOKEN", soft_logout=True)))
        with pytest.raises(ChannelError) as caught:
            await matrix.run(RecordingHandler())
        assert not isinstance(caught.value, ChannelAuthError)  # so it is restarted
        file = tmp_path / "credentials" / "matrix" / "work.json"
        kept = json.loads(file.read_text())
        assert kept["accessToken"] == "first" and kept["deviceId"] == "DEVICE"
        file.write_text(json.dumps({**kept, "accessToken": "gone"}))
        assert await matrix.probe() == ME
        assert json.loads(file.read_text())["accessToken"] == "second"
        first, second = (one.data for one in server.seen("POST /login"))
        assert "device_id" not in first and second["device_id"] == "DEVICE"
        assert first["initial_device_display_name"] == "Homarus"


@pytest.mark.parametrize("kept", ["", "[]", "{", '{"accessToken": "x", "userId": "@other:test"}'])
async def test_matrix_saved_token_of_other_user_is_not_used(tmp_path: Path, kept: str) -> None:
    async with play() as server:
        server.on("POST /login", (403, refusal("M_FORBIDDEN")))
        file = tmp_path / "credentials" / "matrix" / "default.json"
        file.parent.mkdir(parents=True)
        file.write_text(kept)
        given = {"homeserver": server.url, "userId": ME, "password": "wrong"}
        place = ChannelContext("matrix", "default", SystemClock(), state=tmp_path)
        with pytest.raises(ChannelAuthError):
            await create(place, MatrixSettings.read(given)).run(RecordingHandler())
        assert not server.seen("GET /account/whoami") and file.read_text() == kept


async def test_matrix_logs_contain_no_text_and_no_token(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    async with play() as server:
        server.on("POST /rooms/.*/receipt/.*", (403, refusal("M_FORBIDDEN")))
        server.syncs += [sync("s1", event("private words"))]
        desk = RecordingHandler()
        matrix = channel(server)
        async with running(matrix, desk):
            await desk.received(1)
            await matrix.send(Outbound(TO, "private words", "key"))
            await server.until("POST /rooms/.*/receipt/.*")
    assert "private words" not in caplog.text and TOKEN not in caplog.text


# Actions of operators


@asynccontextmanager
async def at_work() -> AsyncIterator[tuple[Server, adapter.MatrixChannel]]:
    async with play() as server:
        matrix = channel(server)
        async with running(matrix, RecordingHandler()):
            yield server, matrix


def said(event_id: str, body: str, kind: str = "m.room.message") -> dict[str, Any]:
    content = {"body": body, "msgtype": "m.text"}
    return {
        "event_id": event_id, "type": kind, "sender": "@alice:test", "content": content,
        "origin_server_ts": 5,
    }  # fmt: skip


def test_matrix_has_every_action_that_its_traits_name() -> None:
    assert {*chat_actions._ACTIONS} == {*TRAITS.chat_actions}


async def test_matrix_reads_and_searches_messages_only() -> None:
    async with at_work() as (server, matrix):
        chunk = [said("$2", "later"), said("$x", "", "m.room.member"), said("$1", "first")]
        server.on("GET /rooms/!r/messages", (200, {"chunk": chunk}))
        server.on("GET /rooms/!r/context/.*", (200, {"start": "t7"}))
        asked = ChatAction("read", limit=3, before="$9")
        found = await matrix.run_chat_action(TO, asked)
        assert [row["id"] for row in found["messages"]] == ["$2", "$1"]
        assert found["messages"][0]["text"] == "later"
        (read,) = server.seen("GET /rooms/!r/messages")
        assert read.query == {"dir": "b", "limit": "3", "from": "t7"}
        events = {"results": [{"result": said("$1", "first")}], "count": 1}
        server.on("POST /search", (200, {"search_categories": {"room_events": events}}))
        found = await matrix.run_chat_action(TO, ChatAction("search", text="fir"))
        assert (found["count"], found["messages"][0]["id"]) == (1, "$1")
        (search,) = server.seen("POST /search")
        asked_for = search.data["search_categories"]["room_events"]
        assert asked_for["search_term"] == "fir" and asked_for["filter"]["rooms"] == ["!r"]


async def test_matrix_pins_keep_what_is_pinned() -> None:
    async with at_work() as (server, matrix):
        state = "/rooms/!r/state/m.room.pinned_events"
        server.on(f"GET {state}", (200, {"pinned": ["$1", 5]}))
        server.on(f"PUT {state}", (200, {"event_id": "$p"}))
        server.on("GET /rooms/!r/event/.*", (200, said("$1", "first")))
        await matrix.run_chat_action(TO, ChatAction("pin", "$2"))
        await matrix.run_chat_action(TO, ChatAction("pin", "$1"))  # it is pinned already
        await matrix.run_chat_action(TO, ChatAction("unpin", "$1"))
        puts = [one.data for one in server.seen(f"PUT {state}")]
        assert puts == [{"pinned": ["$1", "$2"]}, {"pinned": []}]
        found = await matrix.run_chat_action(TO, ChatAction("pins"))
        assert found["messages"] == [{"id": "$1", "sender": "@alice:test", "text": "first"}]


async def test_matrix_moderation_names_person_and_reason() -> None:
    async with at_work() as (server, matrix):
        for verb in ("kick", "ban", "unban"):
            server.on(f"POST /rooms/!r/{verb}", (200, {}))
        await matrix.run_chat_action(TO, ChatAction("kick", user="@eve:test", text="spam"))
        await matrix.run_chat_action(TO, ChatAction("ban", user="@eve:test"))
        await matrix.run_chat_action(TO, ChatAction("ban", user="@eve:test", remove=True))
        asked = [one.data for one in server.seen("POST /rooms/!r/(kick|ban|unban)")]
        assert asked[0] == {"user_id": "@eve:test", "reason": "spam"}
        assert asked[1:] == [{"user_id": "@eve:test"}] * 2
        server.on("POST /rooms/!r/kick", (403, refusal("M_FORBIDDEN")))
        with pytest.raises(SendError, match="M_FORBIDDEN"):
            await matrix.run_chat_action(TO, ChatAction("kick", user="@eve:test"))


async def test_matrix_shows_rooms_members_and_rights() -> None:
    async with at_work() as (server, matrix):
        server.on("GET /rooms/!r/state/m.room.name", (200, {"name": "Family"}))
        server.on("GET /rooms/!r/state/m.room.topic", (404, refusal("M_NOT_FOUND")))
        server.on("GET /joined_rooms", (200, {"joined_rooms": ["!r", 7]}))
        levels = {"users": {ME: 50}, "ban": 60, "kick": "x", "users_default": 1}
        server.on("GET /rooms/!r/state/m.room.power_levels", (200, levels))
        member = {"membership": "join", "displayname": "Alice"}
        server.on("GET /rooms/!r/state/m.room.member/.*", (200, member))
        info = await matrix.run_chat_action(TO, ChatAction("channel-info"))
        assert (info["name"], info["topic"], info["members"]) == ("Family", "", 2)
        listed = await matrix.run_chat_action(TO, ChatAction("channel-list"))
        assert listed == {"channels": [{"id": "!r", "name": "Family"}], "count": 1}
        may = (await matrix.run_chat_action(TO, ChatAction("permissions")))["may"]
        assert (may["ban"], may["kick"], may["send"]) == (False, True, True)
        found = await matrix.run_chat_action(TO, ChatAction("member-info", user="@alice:test"))
        assert (found["name"], found["membership"]) == ("Alice", "join")


async def test_matrix_threads_and_stickers_are_sent_once() -> None:
    async with at_work() as (server, matrix):
        asked = ChatAction("thread-create", "$1", text="<b>hi</b>", key="k")
        for _ in range(2):
            assert (await matrix.run_chat_action(TO, asked))["threadId"] == "$1"
        first, second = server.seen("PUT /rooms/!r/send/m.room.message/.*")
        assert first.path == second.path and first.data["body"] == "<b>hi</b>"
        assert first.data["m.relates_to"]["event_id"] == "$1"
        assert "<b>" not in first.data.get("formatted_body", "")
        with pytest.raises(SendError, match="starts at a message"):
            await matrix.run_chat_action(TO, ChatAction("thread-create", text="x"))
        await matrix.run_chat_action(TO, ChatAction("sticker-send", text="mxc://test/a"))
        assert server.seen("PUT /rooms/!r/send/m.sticker/.*")[0].data["url"] == "mxc://test/a"
        with pytest.raises(SendError, match="mxc"):
            await matrix.run_chat_action(TO, ChatAction("sticker-send", text="file:///x"))
        chunk = {"chunk": [said("$1", "first")]}
        server.on("GET /_matrix/client/v1/rooms/!r/threads", (200, chunk))
        threads = (await matrix.run_chat_action(TO, ChatAction("thread-list")))["threads"]
        assert [row["threadId"] for row in threads] == ["$1"]
        annotation = {"content": {"m.relates_to": {"key": "👍"}}, "sender": "@alice:test"}
        server.on(".*/relations/.*", (200, {"chunk": [annotation, {}]}))
        found = (await matrix.run_chat_action(TO, ChatAction("reactions", "$1")))["reactions"]
        assert found[0] == {"emoji": "👍", "count": 1, "users": ["@alice:test"]}


async def test_matrix_role_changes_only_one_member() -> None:
    async with at_work() as (server, matrix):
        state = "/rooms/!r/state/m.room.power_levels"
        levels: dict[str, Any] = {
            "users": {ME: 100, "@eve:test": 50},
            "ban": 50,
            "events": {"x": 1},
        }
        server.on(f"GET {state}", (200, levels))
        server.on(f"PUT {state}", (200, {"event_id": "$p"}))
        found = await matrix.run_chat_action(TO, ChatAction("role-info"))
        assert [row["role"] for row in found["members"]] == ["admin", "moderator"]
        asked = ChatAction("role-add", user="@alice:test", text="Moderator")
        assert (await matrix.run_chat_action(TO, asked))["level"] == 50
        await matrix.run_chat_action(TO, ChatAction("role-remove", user="@eve:test"))
        first, second = (one.data for one in server.seen(f"PUT {state}"))
        assert first == {**levels, "users": {**levels["users"], "@alice:test": 50}}
        assert second == {**levels, "users": {ME: 100}}
        with pytest.raises(SendError, match="has no role"):
            await matrix.run_chat_action(TO, ChatAction("role-add", user=ME, text="king"))
        server.on(f"GET {state}", (404, refusal("M_NOT_FOUND")))
        with pytest.raises(SendError, match="does not show"):
            await matrix.run_chat_action(TO, ChatAction("role-remove", user="@eve:test"))
