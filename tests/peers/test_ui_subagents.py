"""The sub-agents of the control UI: children that the scripted model started, at work."""

import json
import time
from uuid import uuid4

import pytest
from playwright.sync_api import Locator, expect

from homarus.core.message import Json
from tests.peers.gateway import Running, call
from tests.peers.ui import UiPage

pytestmark = pytest.mark.peers

SESSION = "agent:main:flats"
READY_S = 60.0


def spawn(label: str, task: str) -> str:
    """Return the marker that has the model start a sub-agent; tasks may have markers again."""
    arguments = json.dumps({"label": label, "task": task})
    # The markers of the child are none of its parent: they are written with escapes.
    escaped = arguments.replace("MOCK", "\\u004dOCK")
    return f"MOCK:tool:sessions_spawn:{escaped}§"


def rows(gateway: Running) -> dict[str, Json]:
    """Return the sub-agents by label."""
    found = call(gateway, "subagents.list", recentMinutes=1_440)
    return {row["label"]: row for row in (*found["active"], *found["recent"])}


def wait_for_states(gateway: Running, states: dict[str, str]) -> None:
    deadline_s = time.monotonic() + READY_S
    while {label: row["status"] for label, row in rows(gateway).items()} != states:
        assert time.monotonic() < deadline_s, rows(gateway)
        time.sleep(0.02)


@pytest.fixture(scope="module")
def family(ui_gateway: Running) -> Running:
    """Start a tree of sub-agents: two at work, one below the other, one done and one failed."""
    patch = {"agents": {"defaults": {"subagents": {"maxSpawnDepth": 2}}}}
    base = call(ui_gateway, "config.get")["hash"]
    call(ui_gateway, "config.patch", raw=json.dumps(patch), baseHash=base)
    offers = spawn("Read the offers", "Read them MOCK:hold")
    text = " ".join(
        [
            "Look for a flat",
            spawn("Compare the flats", f"Compare three flats {offers} MOCK:next MOCK:hold"),
            spawn("Check the train", "Check it MOCK:say:It leaves at <b>nine</b>.§"),
            spawn("Ask the bank", "Ask it MOCK:fail:400"),
            "MOCK:next MOCK:say:They are at work.§",
        ]
    )
    key = uuid4().hex
    call(ui_gateway, "chat.send", sessionKey=SESSION, message=text, idempotencyKey=key)
    states = {
        "Compare the flats": "running",
        "Read the offers": "running",
        "Check the train": "done",
        "Ask the bank": "failed",
    }
    wait_for_states(ui_gateway, states)
    return ui_gateway


def item(ui: UiPage, label: str) -> Locator:
    return ui.tab.get_by_role("listitem").filter(has=ui.tab.get_by_role("button", name=label)).last


def test_subagents_of_a_new_gateway_are_empty(ui: UiPage, ui_gateway: Running) -> None:
    ui.tab.goto(f"{ui_gateway.page}subagents")
    expect(ui.tab.get_by_text("No sub-agents")).to_be_visible()


def test_subagents_are_a_tree_with_their_states(ui: UiPage, family: Running) -> None:
    tab = ui.tab
    tab.goto(f"{family.page}subagents")
    tree = tab.get_by_role("list", name=f"Sub-agents of {SESSION}")
    expect(tree.get_by_role("listitem")).to_have_count(4)
    nested = tree.locator(".subagent-tree").get_by_role("button")
    expect(nested).to_have_count(1)
    expect(nested).to_contain_text("Read the offers")
    expect(nested).to_contain_text("running")
    expect(item(ui, "Check the train")).to_contain_text("done")
    expect(item(ui, "Ask the bank")).to_contain_text("failed")
    expect(item(ui, "Ask the bank").locator(".subagent-error")).to_contain_text("400")
    expect(tab.get_by_text("2 active")).to_be_visible()
    ui.take_pictures("subagents")
    tab.get_by_role("button", name="Check the train").click()
    dialog = tab.get_by_role("dialog")
    expect(dialog.get_by_label("Messages")).to_contain_text("It leaves at <b>nine</b>.")
    expect(dialog.get_by_role("button", name="Stop sub-agent")).to_have_count(0)
    ui.check_accessibility()
    dialog.get_by_role("link", name="Open its conversation").click()
    expect(tab.get_by_label("The agent answered")).to_contain_text("It leaves at")


def test_subagent_is_steered_and_stopped(ui: UiPage, family: Running) -> None:
    tab = ui.tab
    tab.goto(f"{family.page}subagents")
    tab.get_by_role("button", name="Read the offers").click()
    dialog = tab.get_by_role("dialog")
    dialog.get_by_label("Message to the sub-agent").fill("Only two MOCK:say:I read two.§")
    dialog.get_by_role("button", name="Send message").click()
    expect(dialog.get_by_role("button", name="Stop sub-agent")).to_have_count(0)
    dialog.get_by_role("button", name="Load again").click()
    expect(dialog.get_by_label("Messages")).to_contain_text("I read two.")
    tab.keyboard.press("Escape")
    expect(item(ui, "Read the offers")).to_contain_text("done")
    tab.get_by_role("button", name="Compare the flats").click()
    dialog.get_by_role("button", name="Stop sub-agent").click()
    expect(tab.get_by_text("Stopped Compare the flats.")).to_be_visible()
    tab.keyboard.press("Escape")
    expect(item(ui, "Compare the flats").get_by_text("killed")).to_be_visible()
    assert rows(family)["Compare the flats"]["status"] == "killed"


def test_stop_all_stops_every_subagent(ui: UiPage, family: Running) -> None:
    text = f"{spawn('One', 'MOCK:hold')} {spawn('Two', 'MOCK:hold')}"
    key = uuid4().hex
    call(family, "chat.send", sessionKey="agent:main:more", message=text, idempotencyKey=key)
    tab = ui.tab
    tab.goto(f"{family.page}subagents")
    expect(tab.get_by_text("2 active")).to_be_visible()
    tab.get_by_role("button", name="Stop all").click()
    tab.get_by_role("dialog").get_by_role("button", name="Stop all").click()
    expect(tab.get_by_text("Stopped 2 sub-agents.")).to_be_visible()
    expect(tab.get_by_role("button", name="Stop all")).to_have_count(0)
    assert {rows(family)[label]["status"] for label in ("One", "Two")} == {"killed"}
