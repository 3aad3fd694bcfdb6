"""Every golden play comes out as it is written down."""

from pathlib import Path

import pytest

from tests.unit.agent.plays import play, plays, read, write


@pytest.mark.parametrize("path", plays(), ids=lambda path: path.stem)
def test_a_play_comes_out_as_written(path: Path) -> None:
    case = read(path)
    assert play(case)["run"] == case["run"], case["about"]


@pytest.mark.parametrize("path", plays(), ids=lambda path: path.stem)
def test_a_play_is_written_as_it_is_kept(path: Path) -> None:
    assert write(read(path)) == path.read_text(encoding="utf-8")


def test_there_are_plays() -> None:
    assert len(plays()) > 25
