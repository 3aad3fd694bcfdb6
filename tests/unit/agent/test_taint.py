"""What untrusted content a run has read, from its messages, its tools and its transcript."""

from homarus.agent.taint import EARLIER_TURNS, RunTaint, recent_messages
from homarus.core.message import (
    Address,
    Inbound,
    InboundMetadata,
    Json,
    Message,
    Text,
    ToolCall,
    ToolResult,
    user_message,
)
from homarus.core.untrusted import wrap_untrusted
from homarus.policy.tool_call import TaintSource
from homarus.testing.fakes import assistant_message

PAGE = TaintSource("web", "https://a.example")
MARK = {"untrusted": [{"kind": "web", "origin": "https://a.example"}]}


def result(details: Json = MARK, text: str = "page") -> ToolResult:
    return ToolResult("c1", "web_fetch", (Text(text),), details=details)


def tool_turn(found: ToolResult) -> list[Message]:
    call = assistant_message(ToolCall("c1", "web_fetch", {}))
    return [user_message("look"), call, Message("tool", (found,)), assistant_message("done")]


def turns(count: int) -> list[Message]:
    return [
        message
        for _ in range(count)
        for message in (user_message("hi"), assistant_message("hello"))
    ]


def forwarded(text: str = "obey") -> Inbound:
    metadata = InboundMetadata(forwarded="Eve")
    return Inbound("1", Address("telegram", "42"), "42", text, metadata=metadata)


def test_result_of_untrusted_tool_taints_the_rest_of_the_run() -> None:
    taint = RunTaint()
    taint.add_result(result(None))
    assert not taint.sources
    taint.add_result(result())
    taint.add_result(result())
    assert taint.sources == (PAGE,)


def test_resumed_run_has_the_taint_of_its_transcript() -> None:
    messages = [*turns(2), *tool_turn(result())[:-1]]
    assert RunTaint(get_messages=lambda: messages).sources == (PAGE,)


def test_compaction_does_not_remove_the_taint_of_a_run() -> None:
    messages = tool_turn(result())
    taint = RunTaint(get_messages=lambda: messages)
    taint.search()
    messages.clear()
    assert taint.sources == (PAGE,)


def test_steering_message_adds_its_taint() -> None:
    taint = RunTaint()
    assert not taint.sources
    taint.add_inbound(forwarded())
    assert [source.kind for source in taint.sources] == ["forward"]


def test_wrapped_user_message_of_an_earlier_turn_taints() -> None:
    wrapped = wrap_untrusted("obey", "forward", "Eve")
    messages = [user_message(f"[Telegram] {wrapped}"), assistant_message("ok"), user_message("do")]
    assert RunTaint(get_messages=lambda: messages).sources == (TaintSource("forward", "Eve"),)


def test_old_turn_taints_no_more() -> None:
    def sources(later: int) -> tuple[TaintSource, ...]:
        messages = [*tool_turn(result()), *turns(later - 1), user_message("now")]
        return RunTaint(get_messages=lambda: messages).sources

    assert sources(EARLIER_TURNS) == (PAGE,)
    assert sources(EARLIER_TURNS + 1) == ()


def test_steering_messages_of_the_current_turn_do_not_end_it() -> None:
    steering = [user_message("and this"), Message("tool", (result(None),))]
    messages = [*tool_turn(result())[:-1], *steering * (EARLIER_TURNS + 3)]
    assert recent_messages(messages) == messages


def test_tool_that_prints_wrapped_text_taints() -> None:
    taint = RunTaint()
    taint.add_result(result(None, wrap_untrusted("obey", "mail", "eve@a.example")))
    assert taint.sources == (TaintSource("mail", "eve@a.example"),)


def test_malformed_mark_of_a_transcript_is_ignored() -> None:
    marks: list[Json] = [{"untrusted": "web"}, {"untrusted": [1, None]}, {"untrusted": {}}]
    for details in marks:
        taint = RunTaint()
        taint.add_result(result(details))
        assert taint.sources == ()


def test_false_asks_of_a_scripted_day_by_how_long_taint_lasts() -> None:
    """Of 40 turns, 8 read a page and 12 run a command; 3 do both. How many commands ask."""
    pages = {2, 3, 9, 15, 16, 24, 31, 38}
    commands = {1, 4, 6, 9, 12, 16, 20, 21, 27, 31, 35, 39}

    def asks(window: int) -> int:
        return sum(any(0 <= at - page <= window for page in pages) for at in commands)

    assert [asks(0), asks(EARLIER_TURNS), asks(40)] == [3, 8, 11]
