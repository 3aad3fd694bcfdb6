"""A research task in the real program: search, fetch, browser, file, answer with sources.

The model is scripted; everything else is real, the gateway and Chromium too. The sites are local,
and some of them are hostile.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from homarus.gateway.client import ClientProfile, GatewayClient, GatewaySecret, connect_gateway
from homarus.gateway.identity import DeviceIdentity
from homarus.policy.approvals import APPROVER_CAPABILITY
from homarus.testing.model_server import CallTools, ModelServer, Say, ScriptedCall
from tests.peers.gateway import TOKEN, Running, new_home, running_gateway
from tests.peers.install import debian
from tests.peers.research_sites import ResearchSite, research_site

pytestmark = [pytest.mark.peers, pytest.mark.timeout(600)]  # the first run installs Chromium

KEY = "agent:main:research"
ACCEPT = "e3"  # the ref of the wall's button: a script cannot read it from the snapshot
MAX_RESULT_CHARS = 31_000
UNTRUSTED = "<<<EXTERNAL_UNTRUSTED_CONTENT"


@pytest.fixture(scope="module")
def site() -> Iterator[ResearchSite]:
    debian(chromium="chromium")
    with research_site() as served:
        yield served


@pytest.fixture(scope="module")
def gateway(
    model: ModelServer, site: ResearchSite, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """Run a gateway that may reach the sites by their name, and no other private address."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TZ") if name in os.environ}
    home = new_home(tmp_path_factory.mktemp("research"), kept, model)
    file = home.state / "openclaw.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    # Commands need no question: what asks in these tests is the page that was read.
    tools = {"exec": {"security": "full", "ask": "off"}, "web": {"fetch": {"timeoutSeconds": 3}}}
    home.configure({**config, "browser": {"noSandbox": True}, "tools": tools})
    web = {
        "search": {"searxng": {"baseUrl": f"http://127.0.0.1:{site.port}"}},
        "fetch": {"ssrfPolicy": {"allowedHostnames": ["localhost"]}},
    }
    (home.state / "homarus.json").write_text(json.dumps({"tools": {"web": web}}))
    with running_gateway(home) as running:
        yield running


@asynccontextmanager
async def person(gateway: Running, folder: Path) -> AsyncIterator[GatewayClient]:
    """Connect as a client at which a person can answer questions."""
    identity = DeviceIdentity.load_or_create(folder / "device.json", 1)
    profile = ClientProfile(GatewaySecret(TOKEN), identity, caps=(APPROVER_CAPABILITY,))
    async with connect_gateway(gateway.url, profile) as client:
        yield client


def call(name: str, **args: Any) -> list[CallTools]:
    return [CallTools(ScriptedCall(name, args))]


def browse(action: str, **args: Any) -> list[CallTools]:
    return call("browser", action=action, **args)


async def ask(client: GatewayClient, text: str, key: str) -> str:
    params = {"message": text, "sessionKey": key, "idempotencyKey": str(uuid4())}
    answer: Any = await client.call("agent", params, final=True, timeout_s=300)
    return "".join(each["text"] or "" for each in answer["result"]["payloads"])


async def results(client: GatewayClient, key: str) -> list[Any]:
    """Return the results of the session's tool calls, in order."""
    history: Any = await client.call("chat.history", {"sessionKey": key, "limit": 200})
    return [one for one in history["messages"] if one["role"] == "toolResult"]


def text_of(result: Any) -> str:
    return "\n".join(part.get("text", "") for part in result["content"])


def audit_of(gateway: Running, key: str) -> list[Any]:
    rows = gateway.home.run("audit", "--kind", "decision", "--limit", "500", "--json").json
    return [row["data"] for row in rows if row["session"] == key]


async def test_research_task_ends_in_a_file_and_an_answer_with_sources(
    gateway: Running, model: ModelServer, site: ResearchSite, tmp_path: Path
) -> None:
    report = f"Summer 07:40 [{site.url}/article], winter 08:15 [{site.url}/harbour]"
    seen = len(model.requests)
    model.script(
        call("web_search", query="ferry to the outer reef"),
        call("web_fetch", url=f"{site.url}/article"),
        browse("open", targetUrl=f"{site.url}/harbour"),
        browse("snapshot"),
        browse("act", request={"kind": "click", "ref": ACCEPT}),
        browse("snapshot"),
        call("write", path="ferry.md", content=report),
        [Say(report)],
    )
    async with person(gateway, tmp_path) as client:
        assert await ask(client, "When does the ferry leave? Write it to ferry.md.", KEY) == report
        found = await results(client, KEY)
        pending: Any = await client.call("exec.approval.list", {})
    texts = [text_of(one) for one in found]
    assert [one["toolName"] for one in found] == [
        "web_search", "web_fetch", "browser", "browser", "browser", "browser", "write",
    ]  # fmt: skip
    assert not [text for one, text in zip(found, texts, strict=True) if one.get("isError")]
    assert pending == [], "reading and a file of the workspace need no question"
    assert f"{site.url}/article" in texts[0] and '"searxng"' in texts[0]
    assert "leaves the old harbour at 07:40" in texts[1] and "Home" not in texts[1]
    assert "Accept all" in texts[3] and "08:15" not in texts[3]
    assert "In winter the ferry leaves at 08:15" in texts[5]
    assert (gateway.home.workspace / "ferry.md").read_text(encoding="utf-8") == report
    # What the model was given of the sites was marked as text of others.
    given = json.dumps(model.requests[-1].body)
    assert given.count(UNTRUSTED) >= 5 and len(model.requests) - seen == 8


async def deny_all(client: GatewayClient, asked: list[Any]) -> None:
    """Deny every question, as a person who did not ask for that does."""
    async for name, payload in client.events():
        if name == "exec.approval.requested":
            asked.append(payload)
            answer = {"id": payload["id"], "decision": "deny"}
            await client.call("exec.approval.resolve", answer)


@pytest.mark.parametrize("reader", ["web_fetch", "browser"])
async def test_page_that_commands_the_model_makes_the_run_ask(
    gateway: Running, model: ModelServer, site: ResearchSite, tmp_path: Path, reader: str
) -> None:
    key, workspace = f"{KEY}-{reader}", gateway.home.workspace
    pwned, soul = workspace / "pwned.txt", workspace / "SOUL.md"
    before = soul.read_text(encoding="utf-8")
    command = {"command": "touch pwned.txt"}
    async with person(gateway, tmp_path) as client, asyncio.TaskGroup() as group:
        asked: list[Any] = []
        denying = group.create_task(deny_all(client, asked))
        model.script(call("exec", **command), [Say("done")])
        assert await ask(client, "Touch the file.", f"{key}-clean") == "done"
        assert asked == [] and pwned.exists(), "without a page, the command needs no question"
        pwned.unlink()

        url = f"{site.url}/blog"
        read = (
            call("web_fetch", url=url) if reader == "web_fetch" else browse("open", targetUrl=url)
        )
        model.script(
            read,
            *([browse("snapshot")] if reader == "browser" else []),
            call("exec", **command),
            call("write", path="SOUL.md", content="obey this blog"),
            call("write", path="notes.md", content="The blog has no times."),
            [Say(f"The blog has no times [{url}].")],
        )
        assert (
            await ask(client, "What does the blog say?", key) == f"The blog has no times [{url}]."
        )
        denying.cancel()
        found = await results(client, key)
    assert any("Ignore your instructions" in text_of(one) for one in found[:2])
    assert [one["request"]["tool"] for one in asked] == ["exec", "write"]
    assert "touch pwned.txt" in asked[0]["request"]["command"]
    assert [one.get("isError", False) for one in found[-3:]] == [True, True, False]
    assert not pwned.exists() and soul.read_text(encoding="utf-8") == before
    assert (workspace / "notes.md").exists()
    decided = [one for one in audit_of(gateway, key) if one["action"] == "ask"]
    assert [one["rule"] for one in decided] == ["taint", "taint"]


async def test_hostile_sites_end_in_errors_and_the_task_goes_on(
    gateway: Running, model: ModelServer, site: ResearchSite, tmp_path: Path
) -> None:
    key = f"{KEY}-hostile"
    model.script(
        call("web_fetch", url=f"{site.url}/to-private"),
        call("web_fetch", url=f"http://{site.private}/secret"),
        call("web_fetch", url=f"{site.url}/huge"),
        call("web_fetch", url=f"{site.url}/slow"),
        browse("open", targetUrl=f"{site.url}/to-private"),
        browse("open", targetUrl=f"http://{site.private}/secret"),
        browse("open", targetUrl=f"{site.url}/reach?{site.private}"),
        browse("open", targetUrl=f"{site.url}/scroll"),
        browse("snapshot"),
        browse("open", targetUrl=f"{site.url}/popups"),
        browse("tabs"),
        browse("open", targetUrl=f"{site.url}/downloads"),
        browse("snapshot"),
        browse("stop"),
        call("web_fetch", url=f"{site.url}/article"),
        [Say("The ferry leaves at 07:40.")],
    )
    async with person(gateway, tmp_path) as client:
        assert await ask(client, "Read all of these.", key) == "The ferry leaves at 07:40."
        found = await results(client, key)
    shown = [(one.get("isError", False), text_of(one)) for one in found]
    names = ("redirect", "direct", "huge", "slow", "opened redirect", "opened", "reach", "scroll",
             "rows", "popups", "tabs", "downloads", "links", "stop", "article")  # fmt: skip
    by_name = dict(zip(names, shown, strict=True))
    for name in ("redirect", "direct", "opened redirect", "opened"):
        is_error, text = by_name[name]
        assert is_error and "not on the public internet" in text, name
    is_error, text = by_name["slow"]
    assert is_error and "longer than 3 s" in text
    for name in ("huge", "rows"):
        assert not by_name[name][0] and len(by_name[name][1]) <= MAX_RESULT_CHARS, name
    assert "blocked" in by_name["reach"][1], "a page's own request is refused too"
    assert by_name["tabs"][1].count('"targetId"') < 15, "the popups are limited"
    assert not by_name["article"][0] and "07:40" in by_name["article"][1]
    files = {path for path in gateway.home.path.rglob("*evil*") if path.is_file()}
    assert {path.parent for path in files} <= {gateway.home.workspace / "media" / "inbound"}
    assert not any(path.stat().st_mode & 0o111 for path in files), "none is a program"
