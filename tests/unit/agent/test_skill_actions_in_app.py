"""Actions of skills in the complete program: offered, asked about, run, audited, and changed."""

import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bench.app import ask, configure, model_server
from homarus.agent.approval_ports import ApproverIdentity
from homarus.app import App
from homarus.process import open_app
from homarus.store.approvals import ApprovalRecord
from tests.unit.skills.action_builders import command, http, schema, write_skill
from tests.unit.tools.web_builders import always, open_site, respond_json

pytestmark = pytest.mark.timeout(120)
KEY = "agent:main:main"
SECRET = "k-topsecret-0123456789"


class Person:
    """A person at the terminal who allows everything."""

    identity = ApproverIdentity("a person")

    def __init__(self) -> None:
        self.asked: list[ApprovalRecord] = []

    def is_reachable(self, _record: ApprovalRecord) -> bool:
        return True

    async def ask(self, record: ApprovalRecord) -> str | None:
        self.asked.append(record)
        return "allow-once"


@asynccontextmanager
async def open_program(
    home: Path, settings: Mapping[str, Any]
) -> AsyncIterator[tuple[App, Person]]:
    with model_server() as url:
        configure(home, url)
        file = home / "state" / "openclaw.json"
        config = json.loads(file.read_text(encoding="utf-8")) | dict(settings)
        file.write_text(json.dumps(config), encoding="utf-8")
        env = {"HOME": str(home), "OPENCLAW_STATE_DIR": str(home / "state")}
        async with open_app({**env, "PATH": os.environ["PATH"]}) as app:
            person = Person()
            app.approval_ports.register_approver(person)
            yield app, person


async def stored_text(app: App) -> str:
    session = await app.control.load(KEY)
    return json.dumps([str(each) for each in session.messages])


async def test_action_of_a_workspace_skill_is_asked_about_once(tmp_path: Path) -> None:
    settings = {
        "tools": {"web": {"fetch": {"ssrfPolicy": {"allowedHostnames": ["127.0.0.1"]}}}},
        "skills": {"entries": {"weather": {"apiKey": SECRET}}},
    }
    async with (
        open_site(always(respond_json({"temp": 7, "echo": SECRET}))) as site,
        open_program(tmp_path, settings) as (app, person),
    ):
        action = http(
            f"{site.url}/v1/{{city}}",
            args=("city",),
            headers={"Authorization": "Bearer ${ENV:WEATHER_KEY}"},
        )
        metadata = {"primaryEnv": "WEATHER_KEY", "requires": {"env": ["WEATHER_KEY"]}}
        folder = tmp_path / "workspace" / "skills"
        write_skill(folder, [action], name="weather", metadata=metadata)
        assert "weather_get" not in app.tools("main")
        for _ in range(2):
            await ask(app, KEY, 'Do MOCK:tool:weather_get:{"city":"Kiel"}§')
        assert "weather_get" in app.tools("main")
        stored = await stored_text(app)
        assert '\\"temp\\": 7' in stored and "EXTERNAL_UNTRUSTED_CONTENT" in stored
        assert [each.headers["authorization"] for each in site.requests] == [f"Bearer {SECRET}"] * 2
        [record] = person.asked
        detail = str(record.request["detail"])
        assert f"request: GET {site.url}/v1/Kiel" in detail and "is new" in detail
        assert "Bearer ${ENV:WEATHER_KEY}" in detail
        await app.audit.write()
        rows = await app.store.audit_entries()
        kinds = [each.kind for each in rows if each.tool == "weather_get"]
        assert kinds.count("decision") == kinds.count("execution") == 2
        for text in (stored, str(record), str(rows)):
            assert "topsecret" not in text
    state_files = [
        each for each in (tmp_path / "state").rglob("*")
        if each.is_file() and each.name != "openclaw.json"
    ]  # fmt: skip
    assert all(SECRET.encode() not in each.read_bytes() for each in state_files)


async def test_action_that_the_config_denies_is_not_offered(tmp_path: Path) -> None:
    settings = {"tools": {"deny": ["skill:helper"]}}
    write_skill(tmp_path / "workspace" / "skills", [command("head", stdin="x")], name="helper")
    async with open_program(tmp_path, settings) as (app, person):
        await ask(app, KEY, "Do MOCK:tool:helper_do:{}§")
        assert "helper_do" not in app.tools("main")
        assert person.asked == [] and "denied by 'skill:helper'" in await stored_text(app)


async def test_list_that_allows_a_skill_alone_restricts_all_others(tmp_path: Path) -> None:
    folder = tmp_path / "workspace" / "skills"
    write_skill(folder, [command("head", stdin="x")], name="helper")
    write_skill(folder, [command("head", stdin="x")], name="other")
    async with open_program(tmp_path, {"tools": {"allow": ["skill:helper"]}}) as (app, _person):
        await ask(app, KEY, "Hello")
        assert [tool.name for tool in app.tools("main")] == ["helper_do"]


async def test_action_of_a_skill_that_lacks_a_program_is_not_offered(tmp_path: Path) -> None:
    write_skill(
        tmp_path / "workspace" / "skills",
        [command("head", stdin="x")],
        name="helper",
        metadata={"requires": {"bins": ["no-such-program-x"]}},
    )
    async with open_program(tmp_path, {}) as (app, _person):
        await ask(app, KEY, "Hello")
        assert "helper_do" not in app.tools("main")


async def test_action_that_changes_between_runs_is_found_by_the_next(tmp_path: Path) -> None:
    folder = tmp_path / "workspace" / "skills"
    write_skill(folder, [command("head", "-c", "1", stdin="x")], name="helper")
    async with open_program(tmp_path, {"skills": {"load": {"watchDebounceMs": 0}}}) as (
        app,
        person,
    ):
        await ask(app, KEY, "Do MOCK:tool:helper_do:{}§")
        before = app.skill_actions.revision
        await ask(app, KEY, "Hello")
        assert app.skill_actions.revision == before
        parameters = schema("text")
        other = command("head", "-c", "3", parameters=parameters, stdin="{text}")
        write_skill(folder, [other], name="helper")
        await ask(app, KEY, 'Do MOCK:tool:helper_do:{"text":"moinsen"}§')
        assert app.skill_actions.revision == before + 1
        assert len(person.asked) == 2 and "has changed" in str(person.asked[1].request)
        assert "---\\\\nmoi\\\\n<<<" in await stored_text(app)
