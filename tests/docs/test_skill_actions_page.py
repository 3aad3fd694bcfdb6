"""The skill on the page about actions works as it is written there."""

import re
from pathlib import Path

import pytest

from homarus.skills.actions.action_files import load_actions
from homarus.skills.frontmatter import read_frontmatter
from homarus.skills.skill import SkillTier, make_skill
from tests.style.rules import ROOT
from tests.unit.skills.action_builders import LOOPBACK, ActionCaller
from tests.unit.tools.web_builders import always, open_site, respond_json

PAGE = ROOT / "docs" / "skill-actions.md"
pytestmark = pytest.mark.timeout(60)


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found
    return found[1]


async def test_skill_of_the_page_does_what_the_page_says(tmp_path: Path) -> None:
    notes = {"notes": [{"title": "Bread"}, {"title": "Soup"}]}
    async with open_site(always(respond_json(notes))) as site:
        folder = tmp_path / "notes"
        folder.mkdir()
        text, file = block("markdown"), folder / "SKILL.md"
        file.write_text(text, encoding="utf-8")
        actions = block("json").replace("https://a.example", site.url)
        (folder / "actions.json").write_text(actions, encoding="utf-8")
        skill = make_skill(read_frontmatter(text), SkillTier.WORKSPACE, file)
        assert load_actions(skill).problems == ()
        caller = ActionCaller(tmp_path, LOOPBACK, {"NOTES_KEY": "k-0123456789"})
        assert [tool.name for tool in caller.tools(skill)] == ["notes_find", "notes_count"]
        found = await caller.call(skill, "find", {"folder": "recipes", "limit": 5})
        counted = await caller.call(skill, "count", {"text": "one two three"})
    assert '["Bread", "Soup"]' in found.text and "\n3\n" in counted.text
    [request] = site.requests
    assert request.target == "/v1/folders/recipes/notes?limit=5"
    assert request.headers["authorization"] == "Bearer k-0123456789"
