"""Only what is in view is laid out, and what is read stays where it is."""

from pathlib import Path
from typing import Any

import pytest

from homarus.cli.tui import block_layout, transcript
from homarus.cli.tui.blocks import AnswerBlock, Block
from tests.unit.cli.tui.harness import (
    MAIN,
    FakeGateway,
    answer,
    drawn_screen,
    screen_text,
    shown,
    until_shown,
    user,
)
from tests.waiting import until


def long_session(count: int) -> FakeGateway:
    gateway = FakeGateway()
    gateway.messages[MAIN] = [
        (user if n % 2 == 0 else answer)(f"message {n} " + "word " * 30, n) for n in range(count)
    ]
    return gateway


def without_scrollbar(screen: str) -> list[str]:
    return [line[:78].rstrip() for line in screen.split("\n")[1:15]]


async def test_long_session_loads_and_lays_out_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    laid_out = set[str]()

    def lay_out(block: Block, view: Any) -> Any:
        laid_out.add(block.key)
        return real(block, view)

    real = block_layout.lay_out
    monkeypatch.setattr(transcript, "lay_out", lay_out)
    gateway = long_session(5_000)
    async with shown(gateway, tmp_path) as (app, _pilot):
        assert "message 4999" in screen_text(app)
        assert len(app.view.conversation.messages) == 60
        assert len(laid_out) < 20
        blocks = [AnswerBlock(f"k{n}", f"text {n}") for n in range(5_000)]
        app.transcript.show_blocks(blocks)
        assert len(laid_out) < 60


async def test_older_messages_are_loaded_when_scrolling_up(tmp_path: Path) -> None:
    async with shown(long_session(200), tmp_path) as (app, pilot):
        await pilot.press("ctrl+home")
        await until(lambda: len(app.view.conversation.messages) == 120)
        assert "message 140" in await drawn_screen(
            app, pilot
        )  # what was at the top is still in view


async def test_line_that_is_read_stays_while_an_answer_streams(tmp_path: Path) -> None:
    gateway = long_session(40)
    async with shown(gateway, tmp_path) as (app, pilot):
        await pilot.press("pageup", "pageup")
        before = without_scrollbar(await drawn_screen(app, pilot))
        for n in range(30):
            gateway.agent("assistant", text="line\n\n" * n + "end", delta="x")
        assert without_scrollbar(await drawn_screen(app, pilot)) == before
        await pilot.press("ctrl+end")
        await until_shown(app, "end")


async def test_resize_keeps_the_end_in_view(tmp_path: Path) -> None:
    async with shown(long_session(40), tmp_path) as (app, pilot):
        for columns in (40, 120, 60):
            await pilot.resize_terminal(columns, 20)
            await until(lambda: "message 39" in screen_text(app))
