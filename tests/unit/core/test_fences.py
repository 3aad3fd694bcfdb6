"""Code fences are found as CommonMark says."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.core.fences import fence_at, find_fences, split_lines

LINES = st.sampled_from(["```", "~~~", "````", "```py", "text", "", "  ```", "    ```", "a ``` b"])
TEXTS = st.lists(LINES, max_size=12).map("\n".join)


def blocks(text: str) -> list[str]:
    return [text[fence.start : fence.end] for fence in find_fences(text)]


def test_a_longer_marker_closes_a_shorter_one_and_not_the_other_way() -> None:
    assert blocks("````\n```\n`````\nx") == ["````\n```\n`````"]


def test_a_marker_with_words_after_it_is_code_inside_a_block() -> None:
    assert blocks("```\n```js\n```\nx") == ["```\n```js\n```"]


def test_backticks_after_backticks_are_no_fence() -> None:
    assert blocks("```code``` in a line\ntext") == []


def test_tildes_do_not_close_backticks() -> None:
    assert blocks("```\n~~~\nx") == ["```\n~~~\nx"]


def test_four_spaces_are_no_fence() -> None:
    assert blocks("    ```\nx\n    ```") == []


def test_windows_line_ends_do_not_belong_to_the_fence() -> None:
    text = "```js\r\nx\r\n```\r\nafter"
    [fence] = find_fences(text)
    assert fence.open_line == "```js"
    assert text[fence.end :] == "\r\nafter"


@pytest.mark.parametrize(("index", "inside"), [(0, False), (1, True), (8, True), (9, False)])
def test_a_cut_at_either_end_is_no_cut_in_the_block(index: int, inside: bool) -> None:
    fences = find_fences("```\na\n```\nb")
    assert (fence_at(fences, index) is not None) is inside


@given(TEXTS)
def test_both_ways_of_finding_fences_agree(text: str) -> None:
    at, marked = 0, list[tuple[str, bool]]()
    fences = find_fences(text)
    for line in text.split("\n"):
        inside = any(fence.start <= at and at + len(line) <= fence.end for fence in fences)
        marked.append((line, inside))
        at += len(line) + 1
    assert list(split_lines(text)) == marked


@given(TEXTS)
def test_fences_are_in_order_and_apart(text: str) -> None:
    edges = [edge for fence in find_fences(text) for edge in (fence.start, fence.end)]
    assert edges == sorted(edges)


@pytest.mark.parametrize("text", ["`" * 10**6, "```\n" * 250_000, "\n" * 10**6, " " * 10**6])
def test_a_megabyte_takes_no_time(text: str) -> None:
    started = time.process_time()
    find_fences(text)
    assert time.process_time() - started < 5
