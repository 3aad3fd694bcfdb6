"""The home that the tests import into."""

from pathlib import Path

import pytest


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "new").mkdir()
    return tmp_path / "new"
