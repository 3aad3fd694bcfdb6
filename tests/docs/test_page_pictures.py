"""The pictures of the chat page and of the control UI: they exist, are small, and are shown."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize("name", ["page.png", "page-phone.png"])
def test_page_picture_is_small_and_shown_with_its_script(name: str) -> None:
    picture = (ROOT / "docs" / name).read_bytes()
    assert picture.startswith(PNG) and len(picture) < 150_000
    gateway = (ROOT / "docs/gateway.md").read_text(encoding="utf-8")
    assert f"]({name})" in gateway and "python docs/record_page.py" in gateway


@pytest.mark.parametrize("name", ["chat-light", "chat-phone", "overview-light", "cron-light"])
def test_ui_picture_is_small_and_shown_with_its_script(name: str) -> None:
    picture = (ROOT / "docs" / "ui" / f"{name}.png").read_bytes()
    assert picture.startswith(PNG) and len(picture) < 250_000
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"](docs/ui/{name}.png)" in readme and "tests/peers/test_ui_pictures.py" in readme
