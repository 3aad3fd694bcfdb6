"""The render cache and the prefix cache."""

import gc

from homarus.core.message import Message, ToolCall, user_message
from homarus.providers.render_cache import MAX_KEPT, PrefixCache, RenderCache


def test_render_cache_renders_message_once() -> None:
    seen: list[Message] = []

    def render(message: Message) -> str:
        seen.append(message)
        return message.text

    rendered = RenderCache(render)
    message = user_message("hi")
    assert [rendered[message], rendered[message]] == ["hi", "hi"]
    assert len(seen) == 1


def test_render_cache_separates_equal_unhashable_messages() -> None:
    rendered = RenderCache(id)
    one, two = (Message("assistant", (ToolCall("c", "n", {"a": []}),)) for _ in range(2))
    assert one == two
    assert rendered[one] != rendered[two]


def test_render_cache_entry_dies_with_message() -> None:
    rendered = RenderCache(lambda message: message.text)
    kept = user_message("kept")
    for n in range(50):
        assert rendered[user_message(f"gone {n}")] == f"gone {n}"
    assert rendered[kept] == "kept"
    gc.collect()
    assert len(rendered) == 1


def test_prefix_cache_found_by_its_messages() -> None:
    begun = PrefixCache[str](least=2)
    history = tuple(user_message(str(n)) for n in range(6))
    assert begun.find(history) is None
    begun.keep(history[:2], "two")
    begun.keep(history[:4], "four")
    assert begun.find(history) == (4, "four")
    assert begun.find(history[:3]) is None, "the older beginning is forgotten"
    assert begun.find((*history[:3], user_message("other"), user_message("more"))) is None
    assert begun.find(history[:1]) is None


def test_prefix_cache_is_bounded() -> None:
    begun = PrefixCache[int](least=1)
    histories = [(user_message(str(n)), user_message("b")) for n in range(MAX_KEPT + 1)]
    for number, history in enumerate(histories):
        begun.keep(history, number)
    found = [begun.find(history) for history in histories]
    assert found == [None, *((2, number) for number in range(1, MAX_KEPT + 1))]
