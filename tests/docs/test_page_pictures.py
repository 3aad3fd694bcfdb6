"""The pictures of the chat page: they exist, are small, and are shown."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize("name", ["page.png", "page-phone.png"])
def test_page_picture_is_small_and_shown_with_its_script(name: str) -> None:
    picture = (ROOT / "docs" / name).read_bytes()
    assert picture.startswith(PNG) and len(picture) < 150_000
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    gateway = (ROOT / "docs/gateway.md").read_text(encoding="utf-8")
    assert f"](docs/{name})" in readme and f"]({name})" in gateway
    assert "python docs/record_page.py" in readme and "python docs/record_page.py" in gateway
