"""A home directory of its own for every test, and a way to put a config there."""

from collections.abc import Callable
from pathlib import Path

import pytest

from homarus.config.paths import Paths


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    (tmp_path / ".openclaw").mkdir()
    return Paths.find({}, tmp_path)


@pytest.fixture
def put(paths: Paths) -> Callable[..., Path]:
    """`put(text)` writes the config, `put(text, name)` a file beside it."""

    def write(text: str, name: str = "openclaw.json") -> Path:
        file = paths.state / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    return write
