"""The `browser` tool on a real Chromium, against local sites, adversarial ones included."""

import asyncio
import json
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from homarus.testing.model_server import ModelServer
from homarus.tools.browser.snapshot import MAX_CHARS
from homarus.tools.browser.tabs import MAX_DOWNLOADS, MAX_TABS
from tests.docs.test_tool_examples import run_example
from tests.peers.adversarial_site import (
    BrowserUser,
    LocalSite,
    browser_processes,
    browser_user,
    images_of,
    local_site,
    text_of,
)
from tests.peers.gateway import TOKEN, call, new_home, running_gateway
from tests.peers.install import debian
from tests.waiting import until

pytestmark = [pytest.mark.peers, pytest.mark.timeout(600)]

SECURE = "site.localhost"  # a name whose pages may have service workers
HOLDER = """
import asyncio, sys
from pathlib import Path
from tests.peers.adversarial_site import browser_user
async def main():
    async with browser_user(Path(sys.argv[1])) as user:
        await user.use(action="open", targetUrl=sys.argv[2])
        print("ready", flush=True)
        await asyncio.sleep(600)
asyncio.run(main())
"""


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    debian(chromium="chromium")


@pytest.fixture
def site() -> Iterator[LocalSite]:
    with local_site() as site:
        yield site


@pytest.fixture
def private() -> Iterator[LocalSite]:
    with local_site() as site:
        yield site


@pytest.fixture
async def user(tmp_path: Path) -> AsyncIterator[BrowserUser]:
    async with browser_user(tmp_path) as user:
        yield user


def url(site: LocalSite, path: str, host: str = "site.test") -> str:
    return f"http://{host}:{site.port}{path}"


async def test_form_is_filled_by_refs_and_sent(user: BrowserUser, site: LocalSite) -> None:
    opened = await user.use(action="open", targetUrl=url(site, "/form"))
    assert (opened["title"], opened["targetId"]) == ("Form", "t1")
    name, gift = await user.find_ref('textbox "Name"'), await user.find_ref("checkbox")
    size = await user.find_ref('combobox "Size"')
    await user.act("type", ref=name, text="Ada", slowly=True)
    await user.act("fill", fields=[{"ref": name, "value": "Bob"}, {"ref": gift, "value": True}])
    assert (await user.act("select", ref=size, values=["large"]))["result"] == ["large"]
    done = await user.act("click", ref=await user.find_ref('button "Send"'))
    assert done["url"].endswith("/ordered?name=Bob&gift=on&size=large")
    assert "Thanks" in await user.text(action="snapshot")


async def test_acts_hover_drag_press_resize_and_wait(user: BrowserUser, site: LocalSite) -> None:
    await user.use(action="open", targetUrl=url(site, "/form"))
    await user.act("hover", ref=await user.find_ref('button "Hover"'))
    await user.act("wait", text="hovered")
    start, end = await user.find_ref('button "Drag"'), await user.find_ref('button "Drop"')
    await user.act("drag", startRef=start, endRef=end)
    await user.act("wait", text="dropped", textGone="hovered")
    await user.act("click", ref=await user.find_ref('button "Inside"'))
    assert "inner clicked" in await user.text(action="snapshot")
    await user.act("resize", width=640, height=480)
    width = await user.act("evaluate", fn="() => [innerWidth, innerHeight]")
    assert width["result"] == [640, 480]
    name = await user.find_ref('textbox "Name"')
    await user.act("press", ref=name, key="x")
    await user.act("press", key="Enter")
    assert "name=x" in await user.text(action="tabs")
    await user.act("close")
    assert (await user.use(action="tabs"))["tabs"] == []


async def test_snapshot_forms_have_the_same_refs(user: BrowserUser, site: LocalSite) -> None:
    await user.use(action="open", targetUrl=url(site, "/form"))
    ref = await user.find_ref('button "Send"')
    aria = await user.text(action="snapshot", snapshotFormat="aria")
    assert f'{{"ref": "{ref}", "role": "button", "name": "Send"' in aria
    short = await user.text(action="snapshot", mode="efficient")
    assert f'- button "Send" [ref={ref}]' in short and "heading" not in short
    part = await user.text(action="snapshot", selector="form")
    assert "Send" in part and "Order" not in part
    inner = await user.text(action="snapshot", frame="iframe")
    assert "Inside" in inner and "Send" not in inner
    labelled = await user.call(action="snapshot", labels=True)
    assert len(images_of(labelled)) == 1 and (labelled.details or {})["labelsCount"] >= 6
    assert "[box=" not in text_of(labelled)


async def test_evaluate_that_is_not_enabled_is_refused(tmp_path: Path, site: LocalSite) -> None:
    async with browser_user(tmp_path, evaluateEnabled=False) as user:
        await user.use(action="open", targetUrl=url(site, "/plain"))
        result = await user.call(action="act", request={"kind": "evaluate", "fn": "() => 1"})
        assert result.is_error and "browser.evaluateEnabled" in text_of(result)


async def test_pictures_and_pdf_are_saved_for_sending(user: BrowserUser, site: LocalSite) -> None:
    await user.use(action="open", targetUrl=url(site, "/form"))
    shot = await user.call(action="screenshot", type="jpeg", ref=await user.find_ref("heading"))
    [image] = images_of(shot)
    assert image.mime == "image/jpeg" and shot.details
    saved = (user.workspace / str(shot.details["path"])).read_bytes()
    assert saved.startswith(b"\xff\xd8")
    pdf = await user.use(action="pdf")
    assert re.fullmatch(r"media/inbound/browser-[0-9a-f]{8}-page\.pdf", pdf["path"])
    assert (user.workspace / pdf["path"]).read_bytes().startswith(b"%PDF")


async def test_redirect_to_private_address_is_refused(
    user: BrowserUser, site: LocalSite, private: LocalSite
) -> None:
    for target in (f"http://127.0.0.1:{private.port}/", "https://192.168.1.1/", "http://a.lan/"):
        site.redirect_to = target
        result = await user.call(action="open", targetUrl=url(site, "/redirect"))
        assert result.is_error and "refused" in text_of(result), target
    assert private.paths == []


@pytest.mark.parametrize("host", ["127.0.0.1", "private.test", "localhost", "[::1]"])
async def test_requests_of_a_page_reach_nothing_private(
    user: BrowserUser, site: LocalSite, private: LocalSite, host: str
) -> None:
    """Fetches, pictures, frames, beacons, WebSockets and service workers."""
    await user.use(action="open", targetUrl=url(site, f"/reach?{host}:{private.port}", SECURE))
    await user.act("wait", text="all tried", timeoutMs=20_000)
    assert private.paths == []
    done = await user.use(action="navigate", targetUrl=url(site, "/plain"))
    assert done["title"] == "Plain"


async def test_requests_of_a_page_reach_an_allowed_host(
    user: BrowserUser, site: LocalSite, private: LocalSite
) -> None:
    """The same page reaches a host that the policy allows: the refusals above are the guard's."""
    await user.use(action="open", targetUrl=url(site, f"/reach?other.test:{private.port}", SECURE))
    await user.act("wait", text="all tried", timeoutMs=20_000)
    reached = {path.partition("?")[0] for path in private.paths}
    assert {"/fetch", "/image.png", "/socket", "/frame", "/beacon", "/worker"} <= reached


async def test_name_that_changes_its_address_is_refused(
    user: BrowserUser, private: LocalSite
) -> None:
    result = await user.call(action="open", targetUrl=url(private, "/plain", "rebind.test"))
    assert result.is_error and "rebind.test resolves to 127.0.0.1" in text_of(result)
    assert private.paths == []


@pytest.mark.parametrize(
    "address", ["file:///etc/passwd", "chrome://version", "javascript:1", "view-source:http://a.b"]
)
async def test_address_outside_the_web_is_not_opened(user: BrowserUser, address: str) -> None:
    result = await user.call(action="open", targetUrl=address)
    assert result.is_error and "only http:// and https://" in text_of(result)


async def test_page_cannot_leave_the_web(user: BrowserUser, site: LocalSite) -> None:
    await user.use(action="open", targetUrl=url(site, "/local"))
    await user.act("wait", text="still here")
    shown = await user.text(action="tabs")
    assert "/local" in shown and "passwd" not in shown and "chrome://" not in shown


async def test_webrtc_sends_no_packet_past_the_proxy(user: BrowserUser, site: LocalSite) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.setblocking(False)
        place = f"127.0.0.1:{listener.getsockname()[1]}"
        await user.use(action="open", targetUrl=url(site, f"/webrtc?{place}"))
        await user.act("wait", text="gathered", timeoutMs=20_000)
        with pytest.raises(BlockingIOError):
            listener.recv(100)


async def test_text_of_a_page_is_marked_untrusted(user: BrowserUser, site: LocalSite) -> None:
    await user.use(action="open", targetUrl=url(site, "/injection"))
    result = await user.call(action="snapshot")
    shown = text_of(result)
    assert shown.startswith("<<<EXTERNAL_UNTRUSTED_CONTENT id=")
    assert "Ignore your instructions" in shown and shown.count("<<<END_EXTERNAL") == 1
    origin = url(site, "/injection")
    assert (result.details or {})["untrusted"] == [{"kind": "web", "origin": origin}]
    failed = await user.call(action="act", request={"kind": "click", "ref": "e999"})
    assert failed.is_error and "there is no element e999" in text_of(failed)


async def test_download_is_named_and_quarantined(user: BrowserUser, site: LocalSite) -> None:
    await user.use(action="open", targetUrl=url(site, "/downloads"))
    done = await user.act("click", ref=await user.find_ref('link "one"'))
    [file] = done["downloads"]
    assert re.fullmatch(r"media/inbound/browser-[0-9a-f]{8}-.*evil\.sh", file["path"])
    saved = user.workspace / file["path"]
    assert saved.read_bytes() == b"a,b\n" and not saved.stat().st_mode & 0o111
    many = await user.act("click", ref=await user.find_ref('button "many"'))
    assert len(many.get("downloads", [])) <= MAX_DOWNLOADS
    while (await user.act("wait", timeMs=200)).get("downloads"):
        pass  # those of "many" that were not complete
    direct = dict(await user.use(action="navigate", targetUrl=url(site, "/file")))
    while "downloads" not in direct:
        direct = dict(await user.act("wait", timeMs=200))


async def test_download_without_end_is_cancelled(user: BrowserUser, site: LocalSite) -> None:
    await user.use(action="open", targetUrl=url(site, "/plain"))
    done = dict(await user.use(action="navigate", targetUrl=url(site, "/endless")))
    while "downloads" not in done:
        done = dict(await user.act("wait", timeMs=200))
    assert "larger than 50 MB" in done["downloads"][0]["problem"]


async def test_popup_storm_has_a_limit(user: BrowserUser, site: LocalSite) -> None:
    await user.use(action="open", targetUrl=url(site, "/popups"))
    tabs = list[dict[str, str]]()
    while len(tabs) < MAX_TABS:
        tabs = (await user.use(action="tabs"))["tabs"]
    assert len(tabs) == MAX_TABS
    refused = await user.call(action="open", targetUrl=url(site, "/plain"))
    assert refused.is_error and f"{MAX_TABS} tabs are open" in text_of(refused)
    await user.use(action="close", targetId="t1")  # the page that opens them
    for tab in tabs[2:]:
        await user.use(action="close", targetId=tab["targetId"])
    assert (await user.use(action="open", targetUrl=url(site, "/plain")))["title"] == "Plain"


async def test_dialogs_are_answered_and_cannot_hang(user: BrowserUser, site: LocalSite) -> None:
    await user.use(action="open", targetUrl=url(site, "/alerts"))
    await user.use(action="dialog", accept=True, promptText="Ada")
    done = await user.act("click", ref=await user.find_ref('button "Ask"'))
    assert done["dialogs"] == [{"type": "prompt", "message": "Your name?", "handled": "accepted"}]
    assert (await user.use(action="tabs"))["tabs"][0]["title"] == "Ada"
    await user.call(action="act", request={"kind": "click", "ref": await user.find_ref("Loop")})
    stuck = await user.call(action="snapshot")
    assert stuck.is_error
    await user.use(action="close")
    opened = await user.use(action="open", targetUrl=url(site, "/plain"))
    assert opened["title"] == "Plain"


async def test_cookie_wall_is_passed_and_remembered(user: BrowserUser, site: LocalSite) -> None:
    await user.use(action="open", targetUrl=url(site, "/wall"))
    await user.act("click", ref=await user.find_ref('button "Accept all"'))
    assert "The article" in await user.text(action="snapshot")
    await user.use(action="stop")
    await user.use(action="open", targetUrl=url(site, "/wall"))
    files = user.control  # the routes of clients use the same control
    cookies = (await files.run("main", "cookies", {}, None)).data["cookies"]  # type: ignore[arg-type]  # no file is used
    assert [(each["name"], each["value"]) for each in cookies] == [("consent", "yes")]
    kept = await files.run("main", "storage", {"kind": "local"}, None)  # type: ignore[arg-type]  # no file is used
    assert kept.data["values"] == {"seen": "yes"}
    other = await user.use(agent="other", action="open", targetUrl=url(site, "/wall"))
    assert other["targetId"] == "t1"
    cookies = (await files.run("other", "cookies", {}, None)).data["cookies"]  # type: ignore[arg-type]  # no file is used
    assert cookies == []


async def test_huge_and_endless_pages_are_cut(user: BrowserUser, site: LocalSite) -> None:
    await user.use(action="open", targetUrl=url(site, "/huge"))
    shown = await user.text(action="snapshot")
    assert len(shown) < MAX_CHARS + 1_000 and "more lines left out" in shown
    assert len(await user.text(action="snapshot", maxChars=500)) < 1_500
    nodes = await user.text(action="snapshot", snapshotFormat="aria", limit=20)
    assert nodes.count('"ref"') == 20 and '"truncated": true' in nodes
    await user.use(action="navigate", targetUrl=url(site, "/scroll"))
    picture = await user.call(action="screenshot", fullPage=True, type="jpeg")
    assert len(images_of(picture)) == 1


async def test_slow_page_is_an_error_in_time(user: BrowserUser, site: LocalSite) -> None:
    result = await user.call(action="open", targetUrl=url(site, "/slow"), timeoutMs=500)
    assert result.is_error and "not ready in time" in text_of(result)
    assert (await user.use(action="open", targetUrl=url(site, "/plain")))["title"] == "Plain"


async def test_upload_reads_the_workspace_and_nothing_else(
    user: BrowserUser, site: LocalSite
) -> None:
    (user.workspace / "notes.txt").write_text("hello")
    await user.use(action="open", targetUrl=url(site, "/upload"))
    ref = await user.find_ref('button "File"')
    await user.use(action="upload", ref=ref, paths=["notes.txt"])
    await user.act("wait", text="notes.txt=hello")
    assert user.effects[-2] == frozenset({"send"})
    refused = await user.call(action="upload", inputRef=ref, paths=["/etc/passwd"])
    assert refused.is_error
    console = await user.use(action="console", level="error")
    assert console["messages"] == []


async def test_browser_that_is_unused_is_closed(tmp_path: Path, site: LocalSite) -> None:
    async with browser_user(tmp_path, idle_s=1.0) as user:
        await user.use(action="open", targetUrl=url(site, "/plain"))
        folder = tmp_path / "state" / "browser" / "main" / "openclaw"
        assert folder.stat().st_mode & 0o777 == 0o700 and browser_processes(folder)
        await until(lambda: not browser_processes(folder), 0.1)
        assert (await user.use(action="status"))["running"] is False
        await user.use(action="open", targetUrl=url(site, "/plain"))


async def test_browser_whose_processes_die_starts_again(
    user: BrowserUser, tmp_path: Path, site: LocalSite
) -> None:
    await user.use(action="open", targetUrl=url(site, "/plain"))
    main = min(browser_processes(tmp_path / "state"))
    os.kill(main, signal.SIGKILL)
    await until(lambda: not browser_processes(tmp_path / "state"), 0.05)
    await until(lambda: not any(p.is_running for p in user.control._processes.values()), 0.05)
    assert (await user.use(action="open", targetUrl=url(site, "/plain")))["title"] == "Plain"


async def test_killed_program_leaves_no_browser(tmp_path: Path, site: LocalSite) -> None:
    holder = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        HOLDER,
        str(tmp_path),
        url(site, "/plain"),
        stdout=asyncio.subprocess.PIPE,
    )
    assert holder.stdout and await holder.stdout.readline() == b"ready\n"
    children = set(browser_processes(tmp_path / "state")) | set(drivers_of(holder.pid))
    assert len(children) >= 4
    holder.kill()
    await holder.wait()
    await until(lambda: not any(is_alive(pid) for pid in children), 0.1)
    assert browser_processes(tmp_path / "state") == []


def drivers_of(parent: int) -> list[int]:
    """Return the processes that a process has started."""
    found = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [int(each) for each in found]


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended may still be in the table."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


async def test_example_of_the_reference_has_its_result(tmp_path: Path) -> None:
    await run_example("browser", tmp_path)


def test_commands_use_the_browser_of_a_gateway(
    tmp_path: Path, model: ModelServer, site: LocalSite
) -> None:
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TZ") if name in os.environ}
    home = new_home(tmp_path, kept | {"OPENCLAW_GATEWAY_TOKEN": TOKEN}, model)
    config = json.loads((home.state / "openclaw.json").read_text())
    home.configure({**config, "browser": {"noSandbox": True}})
    policy = {"browser": {"ssrfPolicy": {"allowedHostnames": ["127.0.0.1"]}}}
    (home.state / "homarus.json").write_text(json.dumps(policy))
    refused = home.run("browser", "status")
    assert refused.status == 2 and "start it: homarus gateway" in refused.err
    with running_gateway(home) as gateway:
        page = f"http://127.0.0.1:{site.port}/form"
        assert "not running" in home.run("browser", "status").out
        assert home.run("browser", "open", page).out == "t1: Form\n"
        assert json.loads(home.run("browser", "tabs", "--json").out)["tabs"][0]["url"] == page
        assert 'button "Send"' in home.run("browser", "snapshot", "--efficient").out
        shot = home.run("browser", "screenshot").out.strip()
        assert shot.startswith("media/inbound/") and shot.endswith(".png")
        assert "not on the public" in home.run("browser", "open", "http://10.0.0.1/").err
        body = {"cookie": {"name": "a", "value": "b"}}
        call(gateway, "browser.request", method="POST", path="/cookies/set", body=body)
        found = call(gateway, "browser.request", method="GET", path="/cookies")
        assert isinstance(found, dict) and found["cookies"][0]["name"] == "a"
        assert home.run("browser", "stop").out == "The browser is stopped.\n"
        home.run("browser", "start")
        assert browser_processes(home.state)
    assert not browser_processes(home.state / "browser")
