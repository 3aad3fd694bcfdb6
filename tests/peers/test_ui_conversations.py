"""The list of conversations of the control UI, with more of them than are loaded at once."""

import os
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from homarus.testing.model_server import ModelServer
from tests.peers.gateway import Running, new_home, running_gateway
from tests.peers.ui import UiPage
from tests.peers.ui_state import add_sessions

pytestmark = pytest.mark.peers

COUNT = 230  # 200 are loaded


@pytest.fixture(scope="module")
def ui_gateway(
    ui_tools: None, model: ModelServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TZ") if name in os.environ}
    home = new_home(tmp_path_factory.mktemp("conversations"), kept, model)
    add_sessions(home, COUNT)
    with running_gateway(home, ui=True) as gateway:
        yield gateway


def test_conversations_are_all_reached_by_list_or_search(ui: UiPage, ui_gateway: Running) -> None:
    listed = ui.tab.get_by_role("region", name="Conversations")
    rows = listed.get_by_role("link")
    expect(rows).to_have_count(60)
    for shown in (120, 180, 200):
        listed.get_by_role("button", name="Show more").click()
        expect(rows).to_have_count(shown)
    expect(listed.get_by_text("Older ones are found by their name")).to_be_visible()
    expect(listed.get_by_role("button", name="Show more")).to_have_count(0)
    search = listed.get_by_label("Search the conversations")
    search.fill("talk-005")
    expect(rows).to_have_count(1)
    search.fill(f"talk-{COUNT - 1}")  # older than what is loaded
    expect(rows).to_have_count(1)
    rows.click()
    expect(ui.tab.get_by_label("The agent answered")).to_contain_text("An answer.")
    expect(rows).to_have_attribute("aria-current", "page")
    search.fill("no such talk")
    expect(listed.get_by_text("No conversation matches.")).to_be_visible()
    ui.check_accessibility()
