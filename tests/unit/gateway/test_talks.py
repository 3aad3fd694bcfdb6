"""Every golden scenario has the recorded output."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.gateway.scenarios import FOLDER, read, replay

NAMES = sorted(file.stem for file in FOLDER.glob("*.talk"))


@pytest.fixture(autouse=True)
def in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A day begins by the machine's clock, wherever that stands."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize("name", NAMES)
async def test_recorded_conversation_is_reproduced(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    written = read(name)
    played = await replay(written, tmp_path)
    if os.environ.get("GOLDEN"):
        (FOLDER / f"{name}.talk").write_text(played, encoding="utf-8")
    assert played == read(name)


def test_recorded_conversations_exist() -> None:
    assert len(NAMES) >= 6
