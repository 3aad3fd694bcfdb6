"""The chat page as a person uses it: sign in, ask, and use a phone."""

import json
import socket

from tests.peers.browser import Browser, Page
from tests.peers.gateway import TOKEN, Running

ENDED = "article[data-role=assistant]:not([data-live])"
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)


def sign_in(browser: Browser, gateway: Running, query: str = "") -> Page:
    page = browser.open(gateway.page + query)
    page.wait_until("!document.querySelector('#sign-in').hidden")
    page.type("#token", TOKEN)
    page.press("Enter")
    page.wait_for_text("#state", "Connected")
    return page


def new_session(page: Page) -> Page:
    """Start a conversation, so that tests do not see each other's."""
    page.click("#new")
    page.wait_until("document.querySelector('#sessions').value.includes(':web-')")
    return page


def ask(page: Page, text: str) -> None:
    page.type("#text", text)
    page.press("Enter")


def use_phone(page: Page) -> None:
    """Make the tab a phone of 360 by 740 points with a touch screen."""
    page.call(
        "Emulation.setDeviceMetricsOverride",
        width=360,
        height=740,
        deviceScaleFactor=2,
        mobile=True,
    )
    page.call("Emulation.setTouchEmulationEnabled", enabled=True)
    page.wait_until("matchMedia('(hover: none) and (pointer: coarse)').matches")


def tap(page: Page, selector: str) -> None:
    """Tap with a finger on the element's position."""
    x, y = page.centre(selector)
    page.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
    page.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])


def count(page: Page, selector: str) -> int:
    found: int = page.run(f"document.querySelectorAll({json.dumps(selector)}).length")
    return found


def own_address() -> str:
    """Return the address of this machine in its network; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        address: str = probe.getsockname()[0]
    return address
