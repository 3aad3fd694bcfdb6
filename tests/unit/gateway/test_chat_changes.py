"""`/config`, `/debug` and `/allowlist`: what a chat may change, and what stays."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from homarus.config.load import load_config
from homarus.core.errors import ConfigError
from homarus.core.message import Address, Inbound
from tests.unit.gateway.app_harness import CONFIG, Harness, run

KEY = "agent:main:main"
GROUP_KEY = "agent:main:irc:group:#room"
IRC: dict[str, Any] = {"enabled": False, "host": "irc.example.org", "nick": "bot"}


def config(irc: dict[str, Any] | None = None, **rest: Any) -> dict[str, Any]:
    commands = {"config": True, "debug": True}
    return {**CONFIG, "commands": commands, "channels": {"irc": {**IRC, **(irc or {})}}, **rest}


async def command(
    it: Harness, text: str, *, key: str = KEY, account: str = "default", authority: Any = "owner"
) -> str:
    """Send a command by IRC and return the reply, or the error."""
    number = len(await it.app.store.journal.inbox_records("answered", "reported"))
    address = Address("irc", "anna", account)
    inbound = Inbound(f"m{number}", address, "anna", text, at_ms=1, authority=authority)
    record = (await it.app.control.accept(key, inbound)).record
    outcome = await it.app.control.submit(key, record)
    return outcome.text or str(outcome.error)


def written(it: Harness) -> Any:
    return json.loads(it.app.paths.config.read_text())


@pytest.mark.parametrize(
    "text",
    [
        "/config set messages.ackReaction=x",
        "/config unset messages",
        "/allowlist add bob",
        "/allowlist remove anna --store",
    ],
)
async def test_chat_without_config_writes_changes_nothing(text: str, tmp_path: Path) -> None:
    async with run(tmp_path, config=config({"configWrites": False, "allowFrom": ["anna"]})) as it:
        before = it.app.paths.config.read_bytes()
        assert "configWrites is false" in await command(it, text)
        assert it.app.paths.config.read_bytes() == before
        assert not (it.app.paths.state / "credentials").exists()


async def test_chat_does_not_change_account_that_forbids_it(tmp_path: Path) -> None:
    irc = {"accounts": {"default": {}, "work": {"configWrites": False}}}
    async with run(tmp_path, config=config(irc)) as it:
        for text in (
            "/config set channels.irc.accounts.work.nick=other",
            "/allowlist add bob --account work",
        ):
            assert "configWrites is false for the account work" in await command(it, text)
        text = "/config set channels.irc.accounts.work.configWrites=true"
        assert "configWrites is false" in await command(it, text)


@pytest.mark.parametrize("name", ["config", "debug"])
async def test_chat_command_switched_off_is_refused(name: str, tmp_path: Path) -> None:
    async with run(tmp_path, config=config(commands={})) as it:
        assert f"/{name} is switched off" in await command(it, f"/{name} show")
        assert "switched off" in await command(it, "/allowlist add bob")
        assert "Paired: none" in await command(it, "/allowlist list")


async def test_config_command_is_for_owner_alone(tmp_path: Path) -> None:
    async with run(tmp_path, config=config()) as it:
        for text in ("/config show", "/debug set messages.ackReaction=x", "/allowlist add bob"):
            assert "for the owner alone" in await command(it, text, authority="authorised")


async def test_config_command_shows_nothing_to_group(tmp_path: Path) -> None:
    async with run(tmp_path, config=config()) as it:
        for text in ("/config show", "/config get channels.irc"):
            assert "no other people read" in await command(it, text, key=GROUP_KEY)
        assert "irc.example.org" in await command(it, "/config show")


@pytest.mark.parametrize(
    "change",
    [
        "commands.bash=true",
        "tools.exec={}",
        "tools.exec.ask=off",
        'tools.elevated.allowFrom.irc=["*"]',
        "agents.defaults.elevatedDefault=full",
        "agents.defaults.workspace=/etc",
        "channels.irc.configWrites=true",
        "models.providers.mock.baseUrl=http://evil.example/v1",
        "messages.messagePrefix=${SECRET_NAME}",
    ],
)
async def test_chat_may_not_set_what_clients_may_not(change: str, tmp_path: Path) -> None:
    tools = {"exec": {"ask": "always"}}
    async with run(tmp_path, config=config(tools=tools)) as it:
        before = it.app.paths.config.read_bytes()
        for name in ("config", "debug"):
            answer = await command(it, f"/{name} set {change}")
            assert "Config changed" not in answer and "Until" not in answer, answer
        assert it.app.paths.config.read_bytes() == before
        assert it.app.loaded.config.tools.exec.ask == "always"


async def test_config_command_refuses_values_that_are_no_settings(tmp_path: Path) -> None:
    async with run(tmp_path, config=config()) as it:
        before = it.app.paths.config.read_bytes()
        for text in (
            "/config set messages.queue.cap=1e999",
            "/config set messages.queue.cap=-1",
            "/config set messages.queue.cap=",
            "/config set ..=1",
            "/config set agents.list[3].id=x",
            "/config set __OPENCLAW_REDACTED__=1",
            "/config set gateway.auth.token=__OPENCLAW_REDACTED__",
        ):
            assert "Config changed" not in await command(it, text)
        assert it.app.paths.config.read_bytes() == before


async def test_debug_override_holds_until_reset(tmp_path: Path) -> None:
    async with run(tmp_path, config=config()) as it:
        app = it.app
        await command(it, '/debug set tools.deny=["write"]')
        await command(it, "/debug set messages.queue.cap=7")
        assert list(app.loaded.config.tools.deny) == ["write"]
        assert "write" not in app.tools("main")
        await app.reload(load_config(app.paths, app.loaded.env))  # the file was changed
        in_use = app.loaded.config
        assert ([*in_use.tools.deny], in_use.messages.queue.cap) == (["write"], 7)
        await command(it, "/debug unset messages.queue.cap")
        assert app.loaded.config.messages.queue.cap is None
        await command(it, "/debug reset")
        assert not app.loaded.config.tools.deny and "write" in app.tools("main")
        assert "tools" not in written(it)


async def test_debug_override_replaces_those_beneath_it(tmp_path: Path) -> None:
    async with run(tmp_path, config=config()) as it:
        await command(it, "/debug set messages.queue.cap=7")
        await command(it, '/debug set messages.queue={"mode":"steer"}')
        queue = it.app.loaded.config.messages.queue
        assert (queue.mode, queue.cap) == ("steer", None)
        assert it.app.overrides.values == {("messages", "queue"): {"mode": "steer"}}


async def test_debug_override_that_does_not_fit_new_file_rejects_it(tmp_path: Path) -> None:
    async with run(tmp_path, config=config()) as it:
        app = it.app
        await command(it, '/debug set tools.alsoAllow=["write"]')
        assert app.loaded.config.tools.also_allow == ("write",)
        changed = app.paths.config.read_text().replace("{", '{"tools": {"allow": ["read"]}, ', 1)
        app.paths.config.write_text(changed)
        with pytest.raises(ConfigError):
            await app.reload(load_config(app.paths, app.loaded.env))
        assert app.loaded.config.tools.also_allow == ("write",)
        assert app.loaded.config.tools.allow is None


async def test_allowlist_edit_of_account_keeps_senders_of_channel(tmp_path: Path) -> None:
    irc = {"allowFrom": ["anna"], "accounts": {"default": {}, "Work": {}}}
    commands = {"config": True, "ownerAllowFrom": ["anna"]}
    async with run(tmp_path, config=config(irc, commands=commands)) as it:
        text = await command(it, "/allowlist add bob --account work")
        assert "channels.irc.accounts.Work.allowFrom, paired senders" in text
        accounts = written(it)["channels"]["irc"]["accounts"]
        assert accounts == {"default": {}, "Work": {"allowFrom": ["anna", "bob"]}}
        await command(it, "/allowlist remove ANNA --account work")
        assert written(it)["channels"]["irc"]["accounts"]["Work"]["allowFrom"] == ["bob"]
        assert "bob is listed already" in await command(it, "/allowlist add bob --account work")
        assert "bob is not listed" in await command(it, "/allowlist remove bob group")


async def test_allowlist_add_makes_no_owner_unless_asked(tmp_path: Path) -> None:
    async with run(tmp_path, config=config({"allowFrom": ["anna"]})) as it:
        assert "added (paired senders)" in await command(it, "/allowlist add bob")
        assert written(it)["channels"]["irc"]["allowFrom"] == ["anna"]
        text = await command(it, "/allowlist add carl --config")
        assert "They give the owner's commands, too" in text
        assert written(it)["channels"]["irc"]["allowFrom"] == ["anna", "carl"]


async def test_config_command_secret_is_not_repeated(tmp_path: Path) -> None:
    async with run(tmp_path, config=config()) as it:
        for text in (
            "/config set channels.irc.password=hunter2-hunter2",
            "/config get channels.irc.password",
            '/config set channels.irc={"password":"hunter2-hunter2","host":"h","nick":"n"}',
            "/config show",
            "/debug set channels.irc.password=hunter2-hunter2",
            "/debug show",
        ):
            assert "hunter2" not in await command(it, text)


async def test_command_of_foreign_text_changes_nothing(tmp_path: Path) -> None:
    async with run(tmp_path, config=config()) as it:
        inbound = Inbound("f", Address("irc", "anna"), "anna", "/config set a=1", at_ms=1)
        record = (await it.app.control.accept(KEY, replace(inbound, authority=""))).record
        assert it.app.commands.interpret(KEY, record).execute is None


async def test_changes_by_chat_are_audited_with_their_sender(tmp_path: Path) -> None:
    async with run(tmp_path, config=config({"allowFrom": ["anna"]})) as it:
        for text in (
            "/exec security=deny",
            "/config set messages.ackReaction=x",
            "/allowlist add bob",
            "/allowlist remove bob",
            "/debug set messages.queue.cap=7",
        ):
            await command(it, text)
        await it.app.reload(load_config(it.app.paths, it.app.loaded.env))
        rows = [dict(each.data) for each in await it.app.store.audit_entries(kind="config")]
        made = {each["target"]: each for each in rows if each.get("by") == "irc:anna"}
        assert made.keys() == {"session", "config", "pairing", "overrides"}
        assert made["session"]["changed"] == {"execSecurity": "unset → deny"}
        assert made["overrides"]["paths"] == ["messages.queue.cap"]
        assert made["overrides"]["values"].keys() == {"messages.queue.cap"}
        actions = [each["action"] for each in rows if each["target"] == "pairing"]
        assert actions == ["approve", "revoke"]
