"""Pictures of the chat and the approvals: a conversation as people have it, in three looks.

`HOMARUS_PICTURES=1` writes them to docs/ui. The gateway has a home of its own, so that nothing of
this machine or of other tests is in them.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from homarus.testing.model_server import (
    CallTools,
    ModelServer,
    ReportedUsage,
    Say,
    ScriptedCall,
    Think,
)
from tests.peers.gateway import Running, call, new_home, running_gateway
from tests.peers.test_ui_chat import NOTES, new_conversation, saved, write
from tests.peers.ui import UiPage, new_page

pytestmark = [pytest.mark.peers, pytest.mark.timeout(600)]

HOME = Path("/tmp/homarus-demo")
USAGE = ReportedUsage(9_200, 310)


@pytest.fixture(scope="module")
def demo(ui_tools: None, model: ModelServer) -> Iterator[Running]:
    """Run a gateway whose programs are those of the system."""
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir()
    home = new_home(HOME, {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}, model)
    with running_gateway(home, ui=True) as gateway:
        yield gateway
    shutil.rmtree(HOME, ignore_errors=True)


@pytest.fixture
def page(ui_browser: Browser, demo: Running) -> Iterator[UiPage]:
    page = new_page(ui_browser).open(demo)
    yield page
    assert page.problems == []
    page.tab.context.close()


def converse(ui: UiPage, model: ModelServer, question: str, answer: str) -> None:
    new_conversation(ui)
    model.script([Say(answer), USAGE])
    write(ui, question)
    expect(saved(ui)).to_have_count(1)


def test_chat_and_approvals_look_as_designed(
    page: UiPage, model: ModelServer, demo: Running
) -> None:
    converse(page, model, "Remind me of the dentist on Friday", "I will, on Friday at 8.")
    converse(page, model, "Flat in Kiel: questions for the agent", "1. Is the heating included?")
    converse(page, model, "What is new in version 0.2?", NOTES)
    page.take_pictures("chat-markdown")

    (demo.home.workspace / "release-0.2.md").write_text("Release 0.2 (draft)\n")
    edit = {
        "path": "release-0.2.md",
        "oldText": "Release 0.2 (draft)",
        "newText": "# Release 0.2\n\nAgents can now run commands, after asking you.",
    }
    new_conversation(page)
    model.script(
        [
            Think("The changelog has three entries that users notice."),
            Say("I read the changelog first, then wrote the notes."),
            CallTools(ScriptedCall("edit", edit)),
            USAGE,
        ],
        [CallTools(ScriptedCall("exec", {"command": "git push origin main"})), USAGE],
        [Say("Then I leave it on this machine."), USAGE],
        [CallTools(ScriptedCall("exec", {"command": "python3 -m pytest -q tests/unit"})), USAGE],
        [Say("They pass."), USAGE],
    )
    write(page, "Write the release notes from the changelog, and publish them.")
    card = page.tab.locator("[data-pending]")
    expect(card).to_contain_text("git push origin main")
    key = str(call(demo, "sessions.list", limit=1)["sessions"][0]["key"])
    call(demo, "sessions.patch", key=key, label="Release notes for 0.2")
    expect(page.tab.get_by_role("heading", name="Release notes for 0.2", level=1)).to_be_visible()
    expect(card.get_by_role("button", name="Allow once")).to_be_enabled()
    page.take_pictures("chat")

    card.get_by_role("button", name="Deny").click()
    expect(saved(page)).to_contain_text("Then I leave it on this machine.")
    write(page, "Then run the tests before you say that they pass.")
    expect(card).to_contain_text("python3 -m pytest -q tests/unit")
    page.tab.get_by_role("link", name="Approvals").first.click()
    expect(page.tab.get_by_label("Earlier approvals")).to_contain_text("git push origin main")
    expect(card.get_by_role("button", name="Allow once")).to_be_enabled()
    page.take_pictures("approvals")
    card.get_by_role("button", name="Deny").click()
    expect(page.tab.get_by_text("Nothing waits for you")).to_be_visible()
    page.check_accessibility()
