"""The hook on the page about hooks works as it is written there."""

import re
from pathlib import Path

from tests.style.rules import ROOT
from tests.unit.agent.hook_builders import (
    MANAGED,
    event,
    make_catalog,
    open_dispatcher,
    switched_on,
)

PAGE = ROOT / "docs" / "hooks.md"


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found
    return found[1]


async def test_hook_of_the_page_does_what_the_page_says(tmp_path: Path) -> None:
    folder = tmp_path / MANAGED / "farewell"
    folder.mkdir(parents=True)
    (folder / "HOOK.md").write_text(block("markdown"), encoding="utf-8")
    (folder / "handler.py").write_text(block("python"), encoding="utf-8")
    entries = {"farewell": {"env": {"FAREWELL_FILE": str(tmp_path / "count")}}}
    catalog = make_catalog(tmp_path, switched_on(entries=entries))
    async with open_dispatcher(tmp_path, catalog) as dispatcher:
        lines = [(await dispatcher.dispatch(event("command:new"))).messages for _ in range(2)]
    assert lines == [
        ("That was conversation 1 with main.",),
        ("That was conversation 2 with main.",),
    ]
