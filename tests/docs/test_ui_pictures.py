"""Every page of the control UI has its pictures in docs/ui."""

import re

from tests.style.rules import ROOT

LOOKS = ("light", "dark", "phone")


def test_every_page_has_pictures_in_three_looks() -> None:
    source = (ROOT / "web" / "src" / "pages" / "index.ts").read_text(encoding="utf-8")
    pages = re.findall(r"\bpath: '([a-z-]+)'", source)
    wanted = {f"{page}-{look}.png" for page in pages for look in LOOKS}
    assert len(pages) > 10
    assert wanted - {file.name for file in (ROOT / "docs" / "ui").iterdir()} == set()
