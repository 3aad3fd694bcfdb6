"""The agents and the memory of the control UI."""

import json

import pytest
from playwright.sync_api import expect

from homarus.core.message import Json
from tests.peers.gateway import Running, call
from tests.peers.ui import UiPage

pytestmark = pytest.mark.peers


@pytest.fixture(scope="module")
def filled(ui_gateway: Running) -> Running:
    """Fill the workspace: notes of some days, and a second agent with a binding."""
    for text, path in [
        ("# Ada\n\n- Ada is allergic to walnuts.\n- She lives in Kiel.", "MEMORY.md"),
        ("- Booked the <b>train</b> to Kiel for Friday.", "memory/2026-02-03.md"),
        ("- Ada liked the walnut-free cake.", "memory/2026-02-05.md"),
        ("- The boiler was serviced.", "memory/2026-01-20.md"),
    ]:
        call(ui_gateway, "memory.write", text=text, path=path)
    call(
        ui_gateway,
        "agents.create",
        name="Research",
        workspace="~/.openclaw/workspace-research",
        emoji="R",
    )
    patch = {"bindings": [{"agentId": "research", "match": {"channel": "telegram"}}]}
    base = call(ui_gateway, "config.get")["hash"]
    call(ui_gateway, "config.patch", raw=json.dumps(patch), baseHash=base)
    return ui_gateway


def test_agent_files_bindings_and_policy_are_shown(ui: UiPage, filled: Running) -> None:
    tab = ui.tab
    tab.goto(f"{filled.page}agents?id=main&tab=files")
    editor = tab.get_by_label("Text of AGENTS.md")
    editor.wait_for()
    rules = [f"{number}. Answer in short sentences.\n" for number in range(1, 1_000)]
    editor.fill("".join(rules))
    tab.get_by_text("A file may have").wait_for()
    ui.take_pictures("agents")
    tab.get_by_role("button", name="Save AGENTS.md").click()
    tab.get_by_text("AGENTS.md is saved").wait_for()
    stored = call(filled, "agents.files.get", agentId="main", name="AGENTS.md")["file"]["content"]
    assert stored.startswith("1. Answer in short sentences.")
    editor.fill("Mine")
    call(filled, "agents.files.set", agentId="main", name="AGENTS.md", content="The agent's")
    tab.get_by_role("button", name="Save AGENTS.md").click()
    tab.get_by_text("has changed since you opened it").wait_for()
    tab.get_by_role("button", name="Load it again").click()
    expect(editor).to_have_value("The agent's")
    tab.get_by_role("tab", name="Policy").click()
    tab.get_by_role("button", name="Explain exec", exact=True).click()
    tab.get_by_role("dialog").get_by_role("button", name="Explain this call").click()
    tab.get_by_role("region", name="Layers of the policy").wait_for()
    ui.check_accessibility()
    tab.keyboard.press("Escape")
    tab.get_by_role("button", name="Research").click()
    tab.get_by_role("tab", name="Bindings").click()
    tab.get_by_role("region", name="Bindings", exact=True).get_by_text("telegram").wait_for()
    ui.check_accessibility()
    tab.get_by_role("tab", name="Identity").click()
    tab.get_by_text("research", exact=False).first.wait_for()
    ui.check_accessibility()


def test_conversation_of_another_agent_names_its_model(ui: UiPage, filled: Running) -> None:
    agents = call(filled, "agents.list")["agents"]
    assert [one["id"] for one in agents] == ["main", "research"]
    ui.tab.goto(f"{filled.page}chat?session=agent:research:new")
    picker = ui.tab.locator(".composer-picker").first
    expect(picker).to_be_visible()
    expect(picker).not_to_have_text("model")


def test_file_that_is_not_saved_stays_while_others_are_shown(ui: UiPage, filled: Running) -> None:
    tab = ui.tab
    tab.goto(f"{filled.page}agents?id=main&tab=files")
    files = tab.get_by_role("list", name="Files")
    files.get_by_role("button", name="SOUL.md").click()
    editor = tab.get_by_label("Text of SOUL.md")
    editor.fill("Half a thought")
    files.get_by_role("button", name="USER.md").click()
    expect(files.get_by_role("button", name="SOUL.md")).to_contain_text("not saved")
    tab.get_by_role("navigation", name="Pages").get_by_role("link", name="Memory").click()
    expect(tab.get_by_role("heading", name="Memory", level=1)).to_be_visible()
    tab.go_back()
    files.get_by_role("button", name="SOUL.md").click()
    expect(editor).to_have_value("Half a thought")
    tab.get_by_role("button", name="Discard changes").click()
    expect(editor).not_to_have_value("Half a thought")
    expect(files.get_by_text("not saved")).to_have_count(0)


def test_memory_is_searched_and_shown(ui: UiPage, filled: Running) -> None:
    tab = ui.tab
    tab.goto(f"{filled.page}memory")
    tab.get_by_text("February 2026").wait_for()
    tab.get_by_label("What to look for").fill("walnuts")
    tab.keyboard.press("Enter")
    hit = tab.get_by_role("list", name="Results").get_by_role("button").first
    hit.wait_for()
    ui.take_pictures("memory")
    hit.click()
    dialog = tab.get_by_role("dialog")
    dialog.get_by_text("walnut").first.wait_for()
    ui.check_accessibility()
    tab.mouse.click(5, 5)
    expect(dialog).to_have_count(0)
    tab.get_by_role("button", name="memory/2026-02-03.md").click()
    tab.get_by_text("<b>train</b>").wait_for()
    assert tab.locator("b", has_text="train").count() == 0


def read_bindings(gateway: Running) -> list[Json]:
    bindings: list[Json] = call(gateway, "config.get")["parsed"].get("bindings", [])
    return bindings


def test_bindings_are_added_explained_changed_and_removed(ui: UiPage, filled: Running) -> None:
    tab = ui.tab
    tab.goto(f"{filled.page}agents?id=research&tab=bindings")
    own = tab.get_by_role("region", name="Bindings", exact=True)
    own.get_by_text("telegram").wait_for()
    tab.get_by_role("button", name="Add binding").click()
    form = tab.get_by_role("dialog")
    form.get_by_label("Channel", exact=True).fill("irc")
    form.get_by_label("Kind of chat").select_option("group")
    form.get_by_label("Chat", exact=True).fill("#lab")
    expect(form.get_by_role("status")).to_contain_text("one chat")
    ui.check_accessibility()
    form.get_by_role("button", name="Add binding").click()
    expect(own.get_by_text("group:#lab")).to_be_visible()
    lab = {
        "agentId": "research",
        "match": {"channel": "irc", "peer": {"kind": "group", "id": "#lab"}},
    }
    assert read_bindings(filled)[-1] == lab
    order = tab.get_by_role("region", name="in the order in which they are tried")
    expect(order.get_by_role("row").nth(1)).to_contain_text("one chat")
    tab.get_by_role("button", name="Close the notice").click()  # it would hide a part
    ui.take_pictures("agents-bindings")
    tab.get_by_role("button", name="Edit irc group:#lab").click()
    form.get_by_label("Account", exact=True).fill("*")
    form.get_by_label("Kind of chat").select_option("")
    form.get_by_role("button", name="Save binding").click()
    expect(form).to_have_count(0)
    expect(own.get_by_text("#lab")).to_have_count(0)
    assert read_bindings(filled)[-1]["match"] == {"channel": "irc", "accountId": "*"}
    tab.get_by_role("button", name="Remove irc *").click()
    form.get_by_role("button", name="Remove binding").click()
    expect(own.get_by_text("irc")).to_have_count(0)
    assert [each["match"] for each in read_bindings(filled)] == [{"channel": "telegram"}]


def test_binding_without_effect_is_marked(ui: UiPage, filled: Running) -> None:
    before = call(filled, "config.get")
    extra = {"agentId": "main", "match": {"channel": "telegram"}}
    bindings = [*before["parsed"]["bindings"], extra]
    patch = json.dumps({"bindings": bindings})
    call(filled, "config.patch", raw=patch, baseHash=before["hash"])
    ui.tab.goto(f"{filled.page}agents?id=main&tab=bindings")
    ui.tab.get_by_text("Without effect: it is bound to research before.").wait_for()
    ui.tab.get_by_role("button", name="Remove telegram").click()
    ui.tab.get_by_role("dialog").get_by_role("button", name="Remove binding").click()
    ui.tab.get_by_text("It is the default agent: it answers every chat").wait_for()


def test_skills_of_each_agent_are_shown(ui: UiPage, filled: Running) -> None:
    folder = filled.home.state / "workspace-research" / "skills" / "survey"
    folder.mkdir(parents=True)
    text = "---\nname: survey\ndescription: Reads surveys.\n---\nRead them.\n"
    (folder / "SKILL.md").write_text(text, encoding="utf-8")
    tab = ui.tab
    tab.goto(f"{filled.page}skills")
    listed = tab.get_by_role("list", name="Skills")
    listed.get_by_role("listitem").first.wait_for()
    expect(listed.get_by_text("survey", exact=True)).to_have_count(0)
    tab.get_by_label("Agent", exact=True).select_option("research")
    expect(listed.get_by_text("survey", exact=True)).to_be_visible()
    assert tab.url.endswith("skills?agent=research")
    ui.check_accessibility()
    ui.check_narrow()
