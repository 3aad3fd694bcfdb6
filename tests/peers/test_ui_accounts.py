"""Accounts of channels in the control UI: added, turned off and on, and removed."""

import pytest
from playwright.sync_api import Locator, expect

from homarus.core.message import Json
from tests.peers.gateway import Running, call
from tests.peers.ui import UiPage

pytestmark = pytest.mark.peers


def channels_of(gateway: Running) -> Json:
    return call(gateway, "config.get")["parsed"].get("channels", {})


@pytest.fixture
def form(ui: UiPage, ui_gateway: Running) -> Locator:
    """Open the form that adds a channel."""
    ui.tab.goto(f"{ui_gateway.page}channels")
    ui.tab.get_by_role("button", name="Add channel").first.click()
    return ui.tab.get_by_role("dialog")


def test_irc_account_is_added_without_password_switched_and_removed(
    ui: UiPage, ui_gateway: Running, form: Locator
) -> None:
    tab = ui.tab
    form.get_by_label("Service").select_option("irc")
    form.get_by_label("Host").fill("127.0.0.1")
    form.get_by_label("Nick", exact=True).fill("lobster")
    form.get_by_text("More settings").click()
    form.get_by_label("Port").fill("9")
    expect(form.get_by_text("The nick of the agent.")).to_be_visible()
    ui.check_accessibility()
    ui.check_narrow()
    form.get_by_role("button", name="Add channel").click()
    account = tab.get_by_role("list", name="Accounts of irc").get_by_role("listitem")
    expect(account.get_by_text("default").first).to_be_visible()
    assert channels_of(ui_gateway)["irc"]["host"] == "127.0.0.1"
    ui.check_narrow()

    tab.get_by_role("button", name="Turn off irc default").click()
    tab.get_by_role("dialog").get_by_role("button", name="Turn off").click()
    expect(account.get_by_text("off", exact=True)).to_be_visible()
    assert channels_of(ui_gateway)["irc"]["enabled"] is False

    tab.get_by_role("button", name="Turn on irc default").click()
    expect(tab.get_by_role("button", name="Turn off irc default")).to_be_visible()
    assert channels_of(ui_gateway)["irc"]["enabled"] is True

    tab.get_by_role("button", name="Remove irc default").click()
    ui.check_accessibility()
    tab.get_by_role("dialog").get_by_role("button", name="Remove account").click()
    expect(tab.get_by_text("No channels yet")).to_be_visible()
    assert "irc" not in channels_of(ui_gateway)


def test_second_account_is_removed_alone(ui: UiPage, ui_gateway: Running, form: Locator) -> None:
    tab = ui.tab
    for name, nick in (("default", "lobster"), ("second", "crab")):
        form.get_by_label("Service").select_option("irc")
        form.get_by_label("Host").fill("127.0.0.1")
        form.get_by_label("Nick", exact=True).fill(nick)
        form.get_by_text("More settings").click()
        form.get_by_label("Account name").fill(name)
        form.get_by_label("Port").fill("9")
        form.get_by_role("button", name="Add channel").click()
        expect(form).to_have_count(0)
        if name == "default":
            tab.get_by_role("button", name="Add channel").first.click()
    tab.get_by_role("button", name="Remove irc second").click()
    tab.get_by_role("dialog").get_by_role("button", name="Remove account").click()
    expect(tab.get_by_role("button", name="Remove irc second")).to_have_count(0)
    assert [*channels_of(ui_gateway)["irc"]["accounts"]] == ["default"]
    tab.get_by_role("button", name="Remove irc default").click()
    tab.get_by_role("dialog").get_by_role("button", name="Remove account").click()
    expect(tab.get_by_text("No channels yet")).to_be_visible()
