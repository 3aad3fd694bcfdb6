"""config.*: shown without secrets, changed only by who saw it, never to run something."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from homarus.config.load import LoadedConfig
from homarus.config.redaction import REDACTED
from homarus.core.errors import ConfigError, HomarusError, InvalidRequestError
from homarus.gateway.config_watch import ConfigChange, ConfigWatcher
from tests.unit.gateway.app_harness import CONFIG, Harness, run

SECRET = "sk-very-secret-key"


def file_of(it: Harness) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(it.app.paths.config.read_text("utf-8"))
    return read


async def base(it: Harness) -> str:
    return str((await it.ask("config.get"))["hash"])


async def test_config_get_returns_three_views_without_secrets(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        shown = await it.ask("config.get")
        assert SECRET not in json.dumps(shown)
        for tree in (json.loads(shown["raw"]), shown["parsed"], shown["resolved"], shown["config"]):
            assert tree["models"]["providers"]["mock"]["apiKey"] == REDACTED
        assert shown["valid"] is True and shown["issues"] == []
        assert shown["config"]["agents"]["defaults"]["maxConcurrent"] == 4
        assert "maxConcurrent" not in shown["parsed"]["agents"]["defaults"]


async def test_config_get_keeps_variable_references(tmp_path: Path) -> None:
    defaults = {"model": "mock/mock-1", "workspace": "~/${SECRET_NAME}"}
    async with run(tmp_path, config={"agents": {"defaults": defaults}}) as it:
        shown = await it.ask("config.get")
        assert "s3cret-value" not in json.dumps(shown)
        assert shown["config"]["agents"]["defaults"]["workspace"] == "~/${SECRET_NAME}"


async def test_config_get_hides_comments(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        text = it.app.paths.config.read_text("utf-8")
        it.app.paths.config.write_text("// token: hunter2hunter2\n" + text, "utf-8")
        assert "hunter2" not in json.dumps(await it.ask("config.get"))


@pytest.mark.parametrize("text", ["{", '{"agents": 5}', '{"nosuch": 1}', "[]", "\x00"])
async def test_config_get_of_broken_file_reports_it(text: str, tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        it.app.paths.config.write_text(text, "utf-8")
        shown = await it.ask("config.get")
        assert shown["valid"] is False and shown["issues"]


async def test_config_set_replaces_file_and_keeps_hidden_values(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        shown = await it.ask("config.get")
        changed = json.loads(shown["raw"])
        changed["agents"]["defaults"]["maxConcurrent"] = 7
        done = await it.ask("config.set", raw=json.dumps(changed), baseHash=shown["hash"])
        assert done["config"]["models"]["providers"]["mock"]["apiKey"] == REDACTED
        written = file_of(it)
        assert written["agents"]["defaults"]["maxConcurrent"] == 7
        assert written["models"]["providers"]["mock"]["apiKey"] == SECRET


@pytest.mark.parametrize("method", ["config.set", "config.patch", "config.apply"])
async def test_config_set_with_outdated_hash_is_refused(method: str, tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        before = it.app.paths.config.read_bytes()
        with pytest.raises(InvalidRequestError, match="base hash required"):
            await it.ask(method, raw="{}")
        with pytest.raises(InvalidRequestError, match="config changed since last load"):
            await it.ask(method, raw="{}", baseHash="0" * 64)
        assert it.app.paths.config.read_bytes() == before


async def test_config_set_without_file_needs_no_hash(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        it.app.paths.config.unlink()
        assert (await it.ask("config.get"))["exists"] is False
        await it.ask("config.set", raw=json.dumps(CONFIG))
        assert file_of(it)["agents"] == CONFIG["agents"]


async def test_config_patch_merges_removes_and_merges_lists_by_id(tmp_path: Path) -> None:
    agents = {"defaults": {"model": "mock/mock-1"}, "list": [{"id": "main"}, {"id": "ops"}]}
    async with run(tmp_path, config={"agents": agents, "session": {"mainKey": "main"}}) as it:
        patch = {
            "agents": {"list": [{"id": "ops", "name": "Ops"}], "defaults": {"maxConcurrent": 9}},
            "session": None,
        }
        done = await it.ask(
            "config.patch", raw=json.dumps(patch), baseHash=await base(it), note="n"
        )
        written = file_of(it)
        assert written["agents"]["list"] == [{"id": "main"}, {"id": "ops", "name": "Ops"}]
        assert written["agents"]["defaults"]["maxConcurrent"] == 9
        assert "session" not in written
        assert done["restart"]["ok"] is False and done["restart"]["mode"] == "none"
        assert done["sentinel"]["payload"]["message"] == "n"
        port = {"gateway": {"port": 1234}}
        again = await it.ask("config.patch", raw=json.dumps(port), baseHash=await base(it))
        assert again["restart"]["ok"] is True


@pytest.mark.parametrize("method", ["config.set", "config.patch", "config.apply"])
@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ("{", "raw"),
        ("[]", "raw must be an object"),
        ("5", "raw must be an object"),
        ('{"nosuch": 1}', "unknown key"),
        ('{"agents": {"defaults": {"maxConcurrent": "x"}}}', "whole number"),
        ('{"channels": {"signal": {"cliPath": "/tmp/x"}}}', "cannot be set through the gateway"),
        ('{"logging": {"file": "/srv/u/.bashrc"}}', "cannot be set through the gateway"),
        ('{"env": {"vars": {"LD_PRELOAD": "/tmp/x.so"}}}', "cannot be set through the gateway"),
        ('{"agents": {"$include": "/etc/passwd"}}', "cannot be set through the gateway"),
        (json.dumps({"models": {"providers": {"new": {"apiKey": REDACTED}}}}), "hidden"),
        ("[" * 5_000, "raw"),
    ],
)
async def test_config_change_that_is_invalid_leaves_the_file(
    method: str, raw: str, why: str, tmp_path: Path
) -> None:
    async with run(tmp_path) as it:
        before = it.app.paths.config.read_bytes()
        with pytest.raises(HomarusError, match=why) as refused:
            await it.ask(method, raw=raw, baseHash=await base(it))
        assert SECRET not in str(refused.value)
        assert it.app.paths.config.read_bytes() == before


async def test_config_schema_marks_secret_settings(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        shown = await it.ask("config.schema")
        assert shown["schema"]["properties"]["agents"]
        assert shown["uiHints"]["models.providers.*.apiKey"] == {"sensitive": True}
        json.dumps(shown)


def watched(
    it: Harness, *, check_startable: Callable[[LoadedConfig], None] = lambda _loaded: None
) -> list[ConfigChange]:
    """Have the gateway watch its config, as the process does; what it took."""
    taken: list[ConfigChange] = []

    async def apply(change: ConfigChange) -> None:
        taken.append(change)
        await it.app.reload(change.loaded)

    env = {"HOME": str(it.app.paths.home), "OPENCLAW_STATE_DIR": str(it.app.paths.state)}
    it.gateway.config_watcher = ConfigWatcher(
        it.app.paths,
        env,
        it.app.loaded,
        it.app.clock,
        apply=apply,
        reject=print,
        check_startable=check_startable,
    )
    return taken


@pytest.mark.parametrize("method", ["config.patch", "config.apply"])
async def test_config_change_is_in_use_when_answered(method: str, tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        taken = watched(it)
        config = file_of(it)
        config["agents"]["defaults"]["maxConcurrent"] = 7
        done = await it.ask(method, raw=json.dumps(config), baseHash=await base(it))
        assert it.app.loaded.config.agents.defaults.max_concurrent == 7 and len(taken) == 1
        applied = done["applied"]
        assert (applied["action"], applied["changed"], applied["withoutEffect"]) == (
            "apply", ["agents.defaults.maxConcurrent"], [],
        )  # fmt: skip
        assert applied["hash"] == await base(it)
        same = await it.ask(method, raw=json.dumps(file_of(it)), baseHash=await base(it))
        assert same["applied"]["action"] == "none" and len(taken) == 1


async def test_config_change_that_needs_a_restart_says_so(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        watched(it)
        raw = json.dumps({"gateway": {"port": 1234}})
        done = await it.ask("config.patch", raw=raw, baseHash=await base(it))
        assert done["applied"]["action"] == "restart" and done["restart"]["ok"] is True


@pytest.mark.parametrize("method", ["config.set", "config.patch", "config.apply"])
async def test_config_that_the_gateway_cannot_run_with_is_not_written(
    method: str, tmp_path: Path
) -> None:
    def check_startable(loaded: LoadedConfig) -> None:
        if loaded.config.gateway.port == 1:
            raise ConfigError("nobody can listen there", key="gateway.port")

    async with run(tmp_path) as it:
        taken = watched(it, check_startable=check_startable)
        before = it.app.paths.config.read_bytes()
        for change, why in (
            ({"gateway": {"port": 1}}, "nobody can listen there"),
            ({"agents": {"defaults": {"workspace": "${UNSET_NAME}"}}}, "UNSET_NAME"),
        ):
            with pytest.raises(InvalidRequestError, match=why):
                await it.ask(method, raw=json.dumps(change), baseHash=await base(it))
            assert it.app.paths.config.read_bytes() == before and not taken
        it.gateway.config_problem = "it is wrong already"  # then it may be mended bit by bit
        raw = json.dumps({**file_of(it), "gateway": {"port": 2}})
        await it.ask(method, raw=raw, baseHash=await base(it))
        assert file_of(it)["gateway"]["port"] == 2


async def test_config_validate_says_what_would_change_and_writes_nothing(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        before = it.app.paths.config.read_bytes()
        tree = (await it.ask("config.get"))["parsed"]
        assert tree["models"]["providers"]["mock"]["apiKey"] == REDACTED
        tree["agents"]["defaults"]["maxConcurrent"] = 2
        tree["gateway"] = {"port": 19_000}
        found = await it.ask("config.validate", raw=json.dumps(tree), baseHash=await base(it))
        assert (found["ok"], found["issues"]) == (True, [])
        assert set(found["changed"]) == {"agents.defaults.maxConcurrent", "gateway"}
        assert found["action"] == "restart"
        assert it.app.paths.config.read_bytes() == before
        same = await it.ask("config.validate", raw=before.decode(), baseHash=await base(it))
        assert (same["action"], same["changed"]) == ("none", [])


@pytest.mark.parametrize(
    ("raw", "path", "part"),
    [
        ("{\n  agents: {\n  oops", "", "expected"),
        ('{"agents": 5}', "agents", ""),
        ('{"nosuch": 1}', "nosuch", ""),
        ('{"channels": {"irc": {"nick": "' + REDACTED + '"}}}', "", "only stands for"),
    ],
)
async def test_config_validate_names_what_is_wrong(
    raw: str, path: str, part: str, tmp_path: Path
) -> None:
    async with run(tmp_path) as it:
        found = await it.ask("config.validate", raw=raw, baseHash=await base(it))
        (issue,) = found["issues"]
        assert found["ok"] is False and issue["path"] == path and part in issue["message"]


async def test_config_validate_reports_an_outdated_hash(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        found = await it.ask("config.validate", raw="{}", baseHash="0" * 64)
        assert (found["ok"], found["isStale"]) == (False, True)
