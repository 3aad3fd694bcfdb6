"""The page of a browser that is not let in yet, and the page that lets it in."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from homarus.testing.model_server import ModelServer
from tests.e2e.program import Home
from tests.peers.browser import Browser, Page
from tests.peers.chat_page import ENDED, count, own_address, sign_in, tap, use_phone
from tests.peers.gateway import TOKEN, Running, call, new_home, running_gateway

pytestmark = [pytest.mark.peers, pytest.mark.timeout(600)]  # the first run installs the browser


@contextmanager
def gateway_on_lan(home: Home, *, tls: bool) -> Iterator[Running]:
    """Run a gateway that other machines can reach."""
    file = home.state / "openclaw.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    lan = {"bind": "lan", "auth": {"token": TOKEN}, "tls": {"enabled": tls}}
    home.configure({**config, "gateway": lan})
    with running_gateway(home) as gateway:
        yield gateway


def open_phone(browser: Browser, url: str) -> Page:
    page = browser.open("about:blank")
    page.call("Security.setIgnoreCertificateErrors", ignore=True)  # as after the browser's warning
    use_phone(page)
    page.go(url)
    return page


def request_id(page: Page) -> str:
    shown = page.wait_for_text("#problem:not([hidden])", "homarus devices approve")
    return shown.rpartition("homarus devices approve ")[2].split()[0]


def revoke(gateway: Running, page: Page) -> None:
    """Void the page's token: it must be approved again."""
    connect = next(frame for frame in page.sent() if '"method":"connect"' in frame)
    device = json.loads(connect)["params"]["device"]["id"]
    call(gateway, "device.token.revoke", deviceId=device, role="operator")


def test_page_over_plain_http_says_it_needs_https(
    browser: Browser, model: ModelServer, gateway: Running, tmp_path: Path
) -> None:
    home = new_home(tmp_path, gateway.home.env, model)
    with gateway_on_lan(home, tls=False) as lan:
        page = open_phone(browser, f"http://{own_address()}:{lan.port}/#token={TOKEN}")
        shown = page.wait_for_text("#problem", "This page needs https")
        assert "homarus config set gateway.tls.enabled true" in shown and "homarus qr" in shown
        assert page.run("document.querySelector('#state').textContent") == "Not connected"
        assert not any(TOKEN in frame for frame in page.sent())
        assert page.run("document.documentElement.scrollWidth <= innerWidth")
        tap(page, "#problem .copy")  # by the way that works without a secure context
        page.wait_for_text("#problem .copy", "Copied")


def test_page_of_phone_over_tls_waits_for_approval_and_goes_on(
    browser: Browser, model: ModelServer, gateway: Running, tmp_path: Path
) -> None:
    home = new_home(tmp_path, gateway.home.env, model)
    with gateway_on_lan(home, tls=True) as lan:
        page = open_phone(browser, f"https://{own_address()}:{lan.port}/#token={TOKEN}")
        page.wait_for_text("#state", "Waiting for approval")
        approved = home.run("devices", "approve", request_id(page))
        assert approved.status == 0, approved
        page.wait_for_text("#state", "Connected")
        tap(page, "#text")
        page.type("#text", "Hello MOCK:say:Hello, phone.§")
        tap(page, "#send")
        assert page.wait_for_text(ENDED, "Hello, phone.")
        page.reload()  # by the device's own token
        assert page.wait_for_text(ENDED, "Hello, phone.")
        connects = [json.loads(f)["params"] for f in page.sent() if '"method":"connect"' in f]
        assert {tuple(params["scopes"]) for params in connects} == {
            ("operator.read", "operator.write", "operator.approvals")
        }


def test_page_of_operator_approves_a_waiting_device(browser: Browser, gateway: Running) -> None:
    operator, other = sign_in(browser, gateway), sign_in(browser, gateway)
    revoke(gateway, other)
    waiting = request_id(other)
    shown = operator.wait_for_text("#devices .ask", waiting)
    assert "A device asks for access" in shown and "read conversations" in shown
    operator.click(f"[data-request='{waiting}'] .main")
    other.wait_for_text("#state", "Connected")
    operator.wait_until(f"!document.querySelector(\"[data-request='{waiting}']\")")
    late = sign_in(browser, gateway)
    revoke(gateway, other)
    waiting = request_id(other)
    late.reload()  # a page that opens later shows the pending request, too
    late.wait_for_text("#devices .ask", waiting)
    other.go("about:blank")  # it stops asking
    assert operator.problems() == []


def test_page_of_rejected_device_says_so_and_stops_asking(
    browser: Browser, gateway: Running
) -> None:
    operator, other = sign_in(browser, gateway), sign_in(browser, gateway)
    revoke(gateway, other)
    rejected = request_id(other)
    operator.wait_for_text("#devices .ask", rejected)
    operator.click(f"[data-request='{rejected}'] .danger")
    other.wait_for_text("#problem-title", "rejected")
    assert count(other, "#problem-retry:not([hidden])") == 1
    again = request_id(other)
    operator.wait_for_text("#devices .ask", again)
    operator.click(f"[data-request='{again}'] .main")
    other.click("#problem-retry")
    other.wait_for_text("#state", "Connected")


def test_page_paired_before_keeps_its_scopes(browser: Browser, gateway: Running) -> None:
    page = sign_in(browser, gateway)
    page.run("localStorage.removeItem('deviceScopes')")  # as an older page left it
    page.reload()
    page.wait_for_text("#state", "Connected")
    connects = [json.loads(f)["params"] for f in page.sent() if '"method":"connect"' in f]
    assert connects[-1]["scopes"] == ["operator.read", "operator.write"]


def test_page_without_device_keys_names_the_reason(browser: Browser, gateway: Running) -> None:
    page = browser.open("about:blank")
    page.call(
        "Page.addScriptToEvaluateOnNewDocument",
        source="crypto.subtle.generateKey = () => Promise.reject(new Error('unknown'));",
    )
    page.go(f"{gateway.page}#token={TOKEN}")
    assert "too old" in page.wait_for_text("#problem", "Ed25519")
    assert page.run("document.querySelector('#state').textContent") == "Not connected"
