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


def test_fence_closes_with_at_least_as_long_marker() -> None:
    assert blocks("````\n```\n`````\nx") == ["````\n```\n`````"]


def test_fence_marker_with_text_inside_block_is_code() -> None:
    assert blocks("```\n```js\n```\nx") == ["```\n```js\n```"]


def test_fence_backticks_with_more_backticks_on_line_is_none() -> None:
    assert blocks("```code``` in a line\ntext") == []


def test_fence_of_backticks_is_not_closed_by_tildes() -> None:
    assert blocks("```\n~~~\nx") == ["```\n~~~\nx"]


def test_fence_indented_by_four_spaces_is_none() -> None:
    assert blocks("    ```\nx\n    ```") == []


def test_fence_excludes_carriage_returns() -> None:
    text = "```js\r\nx\r\n```\r\nafter"
    [fence] = find_fences(text)
    assert fence.open_line == "```js"
    assert text[fence.end :] == "\r\nafter"


@pytest.mark.parametrize(("index", "inside"), [(0, False), (1, True), (8, True), (9, False)])
def test_fence_at_either_end_of_block_is_none(index: int, inside: bool) -> None:
    fences = find_fences("```\na\n```\nb")
    assert (fence_at(fences, index) is not None) is inside


@given(TEXTS)
def test_find_fences_agrees_with_split_lines(text: str) -> None:
    at, marked = 0, list[tuple[str, bool]]()
    fences = find_fences(text)
    for line in text.split("\n"):
        inside = any(fence.start <= at and at + len(line) <= fence.end for fence in fences)
        marked.append((line, inside))
        at += len(line) + 1
    assert list(split_lines(text)) == marked


@given(TEXTS)
def test_find_fences_are_ordered_and_disjoint(text: str) -> None:
    edges = [edge for fence in find_fences(text) for edge in (fence.start, fence.end)]
    assert edges == sorted(edges)


@pytest.mark.parametrize("text", ["`" * 10**6, "```\n" * 250_000, "\n" * 10**6, " " * 10**6])
def test_find_fences_megabyte_is_fast(text: str) -> None:
    started = time.process_time()
    find_fences(text)
    assert time.process_time() - started < 5
