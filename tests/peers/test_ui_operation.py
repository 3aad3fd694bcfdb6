"""The pages for operation in a gateway that was used for weeks: figures, actions, hostile text."""

import json
import os
from collections.abc import Iterator
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Browser, expect

from homarus.core.clock import SystemClock
from homarus.core.message import Json
from homarus.gateway.device_records import DevicePairingRequest
from homarus.gateway.devices import DeviceRegistry
from homarus.testing.model_server import ModelServer
from tests.peers.gateway import Running, call, new_home, running_gateway
from tests.peers.ui import UiPage, new_page
from tests.peers.ui_state import SECRET, fill_home

pytestmark = pytest.mark.peers


@pytest.fixture(scope="module")
def ui_gateway(
    ui_tools: None, model: ModelServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """Run one gateway with weeks of use for this module."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TZ") if name in os.environ}
    home = new_home(tmp_path_factory.mktemp("operation"), kept, model)
    fill_home(home)
    with running_gateway(home, ui=True) as gateway:
        yield gateway


def go(ui: UiPage, gateway: Running, path: str) -> None:
    ui.tab.goto(f"{gateway.page}{path}")
    ui.wait_for_connection()


def read_config(gateway: Running, name: str = "openclaw.json") -> Json:
    return json.loads((gateway.home.state / name).read_text(encoding="utf-8"))


def read_spend(gateway: Running) -> Json:
    return read_config(gateway, "homarus.json")["agents"]["defaults"]["spend"]


def hide(ui: UiPage, selector: str, text: str) -> None:
    """Replace what is different on each machine, so that it is in no picture."""
    ui.tab.eval_on_selector_all(
        selector, "(found, text) => found.forEach((each) => { each.textContent = text; })", text
    )


def test_overview_shows_what_needs_a_person(ui: UiPage, ui_gateway: Running) -> None:
    go(ui, ui_gateway, "overview")
    tab = ui.tab
    expect(tab.get_by_text("Please book the flight")).to_be_visible()
    expect(tab.get_by_text("delivery not confirmed")).to_be_visible()
    expect(tab.get_by_text("of $5.00")).to_be_visible()
    expect(tab.get_by_label("Problems").get_by_text("IRC")).to_be_visible()
    expect(tab.get_by_role("table", name="Cost by day")).to_have_count(1)
    ui.take_pictures("overview")


def test_days_are_those_of_the_gateway(ui_browser: Browser, ui_gateway: Running) -> None:
    """A browser in a country where it is yesterday, or tomorrow already, shows the same days."""
    days = [call(ui_gateway, "usage.cost", days=14)["endDate"]]
    zones = ("Pacific/Pago_Pago", "Pacific/Kiritimati")
    zone = next(each for each in zones if str(datetime.now(ZoneInfo(each)).date()) not in days)
    page = new_page(ui_browser, timezone_id=zone).open(ui_gateway, "overview")
    today = page.tab.locator(".card", has=page.tab.get_by_role("heading", name="Today"))
    expect(today).to_contain_text("$0.025")
    newest = page.tab.get_by_role("table", name="Cost by day").get_by_role("row").last
    expect(newest).to_contain_text("$0.025")
    go(page, ui_gateway, "usage")
    expect(newest).to_contain_text("$0.025")
    expect(page.tab.get_by_role("table", name="Cost by day").get_by_role("row")).to_have_count(30)
    assert page.problems == []
    page.tab.context.close()


def test_overview_discards_a_parked_message(ui: UiPage, ui_gateway: Running) -> None:
    go(ui, ui_gateway, "overview")
    row = ui.tab.get_by_role("listitem").filter(has_text="Please book the flight")
    row.get_by_role("button", name="Discard").click()
    ui.tab.get_by_role("dialog").get_by_role("button", name="Discard").click()
    expect(row).to_have_count(0)
    assert call(ui_gateway, "inbox.list", stuck=True)["messages"] == []


def test_usage_is_grouped_and_a_conversation_opens(ui: UiPage, ui_gateway: Running) -> None:
    go(ui, ui_gateway, "usage")
    tab = ui.tab
    tab.get_by_text("Where it went").wait_for()
    ui.take_pictures("usage")
    tab.get_by_role("tab", name="Models").click()
    expect(tab.get_by_text("vendor/large")).to_be_visible()
    tab.get_by_role("tab", name="Conversations").click()
    tab.get_by_role("tabpanel").get_by_role("link").nth(1).click()
    dialog = tab.get_by_role("dialog")
    expect(dialog.get_by_text("An answer.").first).to_be_visible()
    ui.check_accessibility()


def test_logs_are_filtered_paused_and_followed(ui: UiPage, ui_gateway: Running) -> None:
    go(ui, ui_gateway, "logs")
    tab = ui.tab
    log = ui_gateway.home.path / "gateway.log"
    with log.open("a", encoding="utf-8") as file:
        file.write(
            '{"time": "2026-01-02T10:00:00Z", "level": "error", "message": "the pump failed"}\n'
        )
        file.write("<b onmouseover=alert(1)>plain</b>\n")
    expect(tab.get_by_text("the pump failed")).to_be_visible()
    expect(tab.get_by_text("<b onmouseover=alert(1)>plain</b>")).to_be_visible()
    hide(ui, ".logs-file .mono", "~/.openclaw/logs/openclaw-2026-02-17.log")
    ui.take_pictures("logs")
    tab.get_by_label("Level", exact=True).select_option("error")
    expect(tab.get_by_text("plain</b>")).to_have_count(0)
    tab.get_by_label("Filter lines by text").fill("no such words")
    expect(tab.get_by_text("No line matches")).to_be_visible()
    tab.get_by_label("Filter lines by text").fill("")
    tab.get_by_role("button", name="Pause").click()
    with log.open("a", encoding="utf-8") as file:
        file.write(
            '{"time": "2026-01-02T10:00:01Z", "level": "error", "message": "while paused"}\n'
        )
    tab.get_by_role("button", name="Resume").click()
    expect(tab.get_by_text("while paused")).to_be_visible()


def test_audit_rows_are_verified_filtered_and_paged(ui: UiPage, ui_gateway: Running) -> None:
    go(ui, ui_gateway, "audit")
    tab = ui.tab
    expect(tab.get_by_text("No row was changed")).to_be_visible()
    tab.get_by_role("table").first.wait_for()
    ui.take_pictures("audit")
    tab.get_by_role("button", name="Show earlier rows").click()
    expect(tab.get_by_role("button", name="Show earlier rows")).to_have_count(0)
    tab.get_by_label("Kind").select_option("config")
    expect(tab.get_by_text("agents.defaults.spend.perDayUsd")).to_be_visible()
    tab.get_by_role("button", name="Open row").first.click()
    expect(tab.get_by_role("dialog").get_by_text("Hash")).to_be_visible()


def test_device_is_approved_and_removed(
    ui: UiPage, ui_gateway: Running, ui_browser: Browser
) -> None:
    registry = DeviceRegistry(ui_gateway.home.state / "devices", SystemClock())
    for letter, name in (("a", "Ada's phone"), ("b", "<svg onload=alert(1)>")):
        scopes = ("operator.read", "operator.write", "operator.approvals")
        registry.request(
            DevicePairingRequest(
                letter * 64, letter * 43, "operator", scopes, platform="Android",
                display_name=name, remote_ip="192.0.2.7",
            )
        )  # fmt: skip
    go(ui, ui_gateway, "devices")
    tab = ui.tab
    expect(tab.get_by_text("It may then: read, chat, approve tool calls").first).to_be_visible()
    expect(tab.get_by_text("No node is paired")).to_be_visible()
    other = new_page(ui_browser).open(ui_gateway)
    expect(tab.get_by_label("Connected clients").get_by_text("connected").nth(2)).to_be_visible()
    hide(ui, "[aria-label='Connected clients'] tbody td:first-child", "laptop")
    hide(ui, "[aria-label='Connected clients'] tbody td:nth-child(2)", "linux")
    ui.take_pictures("devices")
    other.tab.context.close()
    request = tab.get_by_role("listitem").filter(has_text="Ada's phone")
    request.get_by_role("button", name="Approve").click()
    expect(tab.get_by_role("button", name="Actions for Ada's phone")).to_be_visible()
    tab.get_by_role("button", name="Reject").click()
    expect(tab.get_by_text("Waiting for approval")).to_have_count(0)
    before = tab.get_by_role("button", name="Actions for").count()
    tab.get_by_role("button", name="Actions for").last.click()
    tab.get_by_role("menuitem", name="Remove device").click()
    tab.get_by_role("dialog").get_by_role("button", name="Remove device").click()
    expect(tab.get_by_role("button", name="Actions for")).to_have_count(before - 1)


def test_permission_that_is_not_approved_leaves_the_chat(
    ui_browser: Browser, ui_gateway: Running
) -> None:
    page = new_page(ui_browser)
    tab = page.tab
    # As a browser on another machine: it asks for what a chat needs.
    tab.add_init_script("localStorage.deviceToken ??= '-';")
    tab.add_init_script("localStorage.deviceScopes ??= 'operator.read,operator.write'")
    page.open(ui_gateway, "config")
    tab.get_by_role("button", name="Request permission").click()
    expect(tab.get_by_role("heading", name="Waiting for approval")).to_be_visible()
    (asked,) = call(ui_gateway, "device.pair.list")["pending"]
    call(ui_gateway, "device.pair.reject", requestId=asked["requestId"])
    expect(tab.get_by_role("heading", name="Not approved")).to_be_visible()
    page.check_accessibility()
    tab.get_by_role("button", name="Go on without it").click()
    page.wait_for_connection()
    expect(tab.get_by_role("button", name="Request permission")).to_be_visible()
    tab.reload()
    page.wait_for_connection()
    (left,) = call(ui_gateway, "device.pair.list")["pending"]  # of the last attempt
    call(ui_gateway, "device.pair.reject", requestId=left["requestId"])
    assert page.problems == []
    tab.context.close()


def test_config_is_edited_in_the_form_with_a_review(ui: UiPage, ui_gateway: Running) -> None:
    go(ui, ui_gateway, "config")
    tab = ui.tab
    for name in ("agents", "defaults", "spend"):
        tab.locator("summary .mono").get_by_text(name, exact=True).first.click()
    tab.get_by_role("textbox", name="perDayUsd").scroll_into_view_if_needed()
    hide(ui, ".config-path", "~/.openclaw/openclaw.json")
    expect(tab.get_by_text("The most that all runs of a day may cost together")).to_be_visible()
    ui.take_pictures("config")
    assert SECRET not in tab.content()
    tab.get_by_label("Search settings").fill("own menus and footers")
    expect(tab.get_by_text("No setting has these words")).to_be_visible()
    tab.get_by_label("Search settings").fill("menus and footers")
    expect(tab.get_by_label("tools.web.fetch.readability", exact=True)).to_be_visible()
    tab.get_by_label("Search settings").fill("spend.perDay")
    tab.get_by_label("agents.defaults.spend.perDayUsd", exact=True).fill("7.5")
    tab.get_by_role("button", name="Review changes").click()
    dialog = tab.get_by_role("dialog")
    expect(dialog.get_by_text('"perDayUsd": 7.5')).to_be_visible()
    ui.check_accessibility()
    dialog.get_by_role("button", name="Apply").click()
    expect(tab.get_by_text("Saved and in use.")).to_be_visible()
    assert read_spend(ui_gateway)["perDayUsd"] == 7.5
    assert read_config(ui_gateway)["env"]["vars"]["WEATHER_API_KEY"] == SECRET


def test_config_that_is_not_saved_stays_while_a_page_is_shown(
    ui: UiPage, ui_gateway: Running
) -> None:
    go(ui, ui_gateway, "config")
    tab = ui.tab
    menu = tab.get_by_role("navigation", name="Pages")
    tab.get_by_role("tab", name="JSON5").click()
    editor = tab.get_by_label("Config as JSON5")
    editor.fill("{ half: ")
    menu.get_by_role("link", name="Approvals").click()
    expect(tab.get_by_role("heading", name="Approvals", level=1)).to_be_visible()
    menu.get_by_role("link", name="Config").click()
    expect(editor).to_have_value("{ half: ")
    tab.get_by_role("button", name="Discard").click()
    tab.get_by_role("tab", name="Form").click()
    tab.get_by_label("Search settings").fill("spend.perDay")
    limit = tab.get_by_label("agents.defaults.spend.perDayUsd", exact=True)
    limit.fill("3.25")
    menu.get_by_role("link", name="Approvals").click()
    menu.get_by_role("link", name="Config").click()
    tab.get_by_label("Search settings").fill("spend.perDay")
    expect(limit).to_have_value("3.25")
    tab.get_by_role("button", name="Discard").click()
    expect(limit).not_to_have_value("3.25")
    expect(tab.get_by_role("button", name="Review changes")).to_be_disabled()


def test_config_text_is_validated_and_a_conflict_is_kept(ui: UiPage, ui_gateway: Running) -> None:
    go(ui, ui_gateway, "config")
    tab = ui.tab
    tab.get_by_role("tab", name="JSON5").click()
    editor = tab.get_by_label("Config as JSON5")
    text = editor.input_value()
    assert SECRET not in text and "__OPENCLAW_REDACTED__" in text
    editor.fill("{\n  agents: oops")
    tab.get_by_role("button", name="Review changes").click()
    expect(tab.get_by_role("dialog").get_by_text("line 2")).to_be_visible()
    tab.get_by_role("button", name="Go on editing").click()
    config = read_config(ui_gateway)
    config["agents"]["defaults"]["maxConcurrent"] = 3
    ui_gateway.home.configure(config)
    editor.fill(text.replace('"perRunUsd": 1', '"perRunUsd": 6.5'))
    tab.get_by_role("button", name="Review changes").click()
    expect(tab.get_by_text("The file was changed elsewhere.")).to_be_visible()
    assert "6.5" in editor.input_value()
    assert read_spend(ui_gateway)["perRunUsd"] == 1
    tab.get_by_role("button", name="Review changes").click()
    removed = tab.get_by_role("dialog").locator(".diff-del").filter(has_text="maxConcurrent")
    expect(removed).to_be_visible()
