"""Every page of the control UI, with real data that is hostile: barriers, width and attacks."""

import re
from collections.abc import Callable, Iterator
from typing import Literal, TypeAlias

import pytest
from playwright.sync_api import Browser, Dialog, Page, ViewportSize, expect

from homarus.testing.model_server import ModelServer
from tests.peers.gateway import Running
from tests.peers.ui import WAIT_MS, WEB, UiPage, new_page
from tests.peers.ui_hostile import MARK, SESSION, hostile_gateway, request_decisions

pytestmark = pytest.mark.peers

SMALL_PHONE: ViewportSize = {"width": 360, "height": 740}
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
# Elements that only an attack can have made.
MADE = (
    "img[src='x'], img[src^='http'], script:not([src]), iframe, svg[onload], style,"
    " a[href^='javascript'], a[href^='data'], object, embed, link[href*='evil']"
)
WIDE_DIALOGS = """[...document.querySelectorAll('dialog')]
  .filter((one) => one.scrollWidth > one.clientWidth).length"""
Prepare: TypeAlias = Callable[[Page], None]


def _click_tab(name: str) -> Prepare:
    return lambda tab: tab.get_by_role("tab", name=name).click()


def _search_memory(tab: Page) -> None:
    tab.get_by_label("What to look for").fill("walnuts")
    tab.keyboard.press("Enter")
    tab.get_by_role("list", name="Results").get_by_role("button").first.click()


def _start_setup(tab: Page) -> None:
    tab.get_by_role("button", name="Start").click()
    tab.get_by_role("button", name="Continue").wait_for()


def _open_details(tab: Page) -> None:
    tab.locator("summary").first.wait_for()
    for summary in tab.locator("main summary").all():
        summary.click()


def _open_row(name: str) -> Prepare:
    return lambda tab: tab.get_by_role("button", name=name).first.click()


# Path and query → what makes the page show the hostile text, if it does not at once.
PAGES: dict[str, Prepare | None] = {
    f"chat?session={SESSION}": _open_details,
    "approvals": None,
    "overview": None,
    "usage": _click_tab("Conversations"),
    "logs": None,
    "audit": _open_row("Open row"),
    "devices": None,
    "config": _click_tab("JSON5"),
    "cron": None,
    "agents?id=attack": None,
    "memory": _search_memory,
    "skills": None,
    "subagents": _open_row(MARK),
    "channels": None,
    "setup": _start_setup,
}
HARMLESS = {"setup"}  # it shows no text from outside
ALL_PAGES = [pytest.param(path, id=path.partition("?")[0]) for path in PAGES]


@pytest.fixture(scope="module")
def ui_gateway(
    ui_tools: None, model: ModelServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    with hostile_gateway(tmp_path_factory.mktemp("hostile"), model) as gateway:
        yield gateway


def open_page(ui: UiPage, gateway: Running, path: str) -> None:
    """Open a page, and wait until the hostile text is on it."""
    ui.tab.goto(f"{gateway.page}{path}")
    ui.wait_for_connection()
    ui.tab.get_by_role("heading", level=1).wait_for()
    if path == "approvals":
        request_decisions(gateway)
        expect(ui.tab.locator("[data-pending]").nth(1)).to_be_visible(timeout=WAIT_MS)
    prepare = PAGES[path]
    if prepare:
        prepare(ui.tab)
    if path not in HARMLESS:
        shown = ui.tab.locator("main, dialog, [role=dialog]")
        if path == "config":
            expect(ui.tab.get_by_label("Config as JSON5")).to_have_value(
                re.compile(re.escape(MARK))
            )
        else:
            expect(shown.filter(has_text=MARK).first).to_be_visible(timeout=WAIT_MS)


def close_page(ui: UiPage, path: str) -> None:
    """End what a page has started: a gateway has one setup at a time."""
    if path == "setup":
        ui.tab.get_by_role("button", name="Stop the setup").click()
        expect(ui.tab.get_by_role("button", name="Start")).to_be_visible()


def test_every_page_of_the_registry_has_a_test() -> None:
    source = (WEB / "src" / "pages" / "index.ts").read_text(encoding="utf-8")
    paths = set(re.findall(r"\bpath: '([a-z-]+)'", source))
    assert paths == {path.partition("?")[0] for path in PAGES}


@pytest.mark.parametrize("path", ALL_PAGES)
def test_page_with_hostile_text_is_safe_accessible_and_narrow(
    ui_browser: Browser, ui_gateway: Running, path: str
) -> None:
    page = new_page(ui_browser)
    dialogs: list[str] = []

    def close_dialog(dialog: Dialog) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    page.tab.on("dialog", close_dialog)
    page.open(ui_gateway)
    open_page(page, ui_gateway, path)
    check_safe(page, ui_gateway)
    for scheme in SCHEMES:
        page.tab.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        page.check_accessibility()
    page.tab.set_viewport_size(SMALL_PHONE)
    assert page.tab.evaluate("document.documentElement.scrollWidth") <= SMALL_PHONE["width"]
    assert page.tab.evaluate(WIDE_DIALOGS) == 0
    page.check_accessibility()
    check_safe(page, ui_gateway)
    assert dialogs == []
    close_page(page, path)
    page.tab.context.close()


def check_safe(page: UiPage, gateway: Running) -> None:
    """Fail if the hostile text made an element, a request or an error, or turned text around."""
    expect(page.tab.locator(MADE)).to_have_count(0)
    assert "\u202e" not in page.tab.inner_text("body")
    assert page.problems == []  # also what the content security policy blocked
    assert [url for url in page.requested if not url.startswith((gateway.page, "data:"))] == []


def test_address_of_no_page_is_not_served(ui: UiPage, ui_gateway: Running) -> None:
    answer = ui.tab.request.get(f"{ui_gateway.page}no-such-page")
    assert answer.status == 401
