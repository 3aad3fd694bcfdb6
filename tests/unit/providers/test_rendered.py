"""The memory of what was rendered."""

import gc

from homarus.core.message import Message, ToolCall, user
from homarus.providers.rendered import Rendered


def test_a_message_is_rendered_once() -> None:
    seen: list[Message] = []

    def render(message: Message) -> str:
        seen.append(message)
        return message.text

    rendered = Rendered(render)
    message = user("hi")
    assert [rendered[message], rendered[message]] == ["hi", "hi"]
    assert len(seen) == 1


def test_equal_messages_are_told_apart_and_unhashable_ones_are_taken() -> None:
    rendered = Rendered(id)
    one, two = (Message("assistant", (ToolCall("c", "n", {"a": []}),)) for _ in range(2))
    assert one == two
    assert rendered[one] != rendered[two]


def test_what_was_made_of_a_message_goes_with_it() -> None:
    rendered = Rendered(lambda message: message.text)
    kept = user("kept")
    for n in range(50):
        assert rendered[user(f"gone {n}")] == f"gone {n}"
    assert rendered[kept] == "kept"
    gc.collect()
    assert len(rendered) == 1
