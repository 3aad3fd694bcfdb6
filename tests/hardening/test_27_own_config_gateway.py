"""A running gateway shows and changes `homarus.json` and `openclaw.json` as one configuration."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from homarus.cli.config import command as config_command
from homarus.cli.doctor import command as doctor_command
from homarus.config.load import load_config
from homarus.config.paths import Paths
from homarus.config.tree_edit import set_path
from homarus.config.write import move_own_settings, write_config
from homarus.core.errors import ConfigError, InvalidRequestError
from homarus.gateway.config_watch import ConfigChange, ConfigWatcher
from homarus.gateway.last_good import load_config_or_last_good, restore_command, save_last_good
from tests.unit.gateway.app_harness import Harness, run

SPEND = {"agents": {"defaults": {"spend": {"perDayUsd": 5}}}}


def read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


async def patch(it: Harness, change: Any) -> Any:
    base = (await it.ask("config.get"))["hash"]
    return await it.ask("config.patch", raw=json.dumps(change), baseHash=base)


async def test_config_patch_writes_own_keys_to_homarus_json(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        before = it.app.paths.config.read_bytes()
        done = await patch(it, SPEND)
        assert done["applied"]["file"] == str(it.app.paths.own_config)
        assert done["applied"]["changed"] == ["agents.defaults.spend"]
        assert it.app.paths.config.read_bytes() == before
        assert read(it.app.paths.own_config) == SPEND
        shown = await it.ask("config.get")
        for view in (shown["parsed"], shown["resolved"], shown["config"], json.loads(shown["raw"])):
            assert view["agents"]["defaults"]["spend"] == {"perDayUsd": 5}
        await patch(it, {"agents": {"defaults": {"spend": None}}})
        assert read(it.app.paths.own_config) == {}


async def test_config_get_adds_no_defaults_of_own_keys(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        defaults = (await it.ask("config.get"))["config"]["agents"]["defaults"]
        assert defaults["compaction"]["reserveTokensFloor"] == 20_000
        assert not {"enabled", "reserveTokens", "keepRecentTokens"} & defaults["compaction"].keys()


async def test_config_hash_is_stale_after_change_of_homarus_json(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        base = (await it.ask("config.get"))["hash"]
        it.app.paths.own_config.write_text(json.dumps(SPEND))
        with pytest.raises(InvalidRequestError, match="changed since last load"):
            await it.ask("config.patch", raw="{}", baseHash=base)


async def test_value_that_openclaw_cannot_read_is_reported(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        done = await patch(it, {"agents": {"defaults": {"maxConcurrent": 3}}})
        assert done["applied"]["unreadable"] == []
        done = await patch(it, {"agents": {"defaults": {"model": "mock/other"}}})
        assert "agents.defaults.model: expected an object" in done["applied"]["unreadable"][0]
        warnings = [each["message"] for each in (await it.ask("config.get"))["warnings"]]
        assert any("OpenClaw cannot read agents.defaults.model" in text for text in warnings)


def watcher(it: Harness, applied: list[ConfigChange]) -> ConfigWatcher:
    async def apply(change: ConfigChange) -> None:
        applied.append(change)

    app = it.app
    rejected: list[ConfigError] = []
    return ConfigWatcher(
        app.paths, app.loaded.env, app.loaded, it.clock, apply=apply, reject=rejected.append
    )


async def test_watcher_applies_homarus_json_and_keeps_it_when_gone(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        applied: list[ConfigChange] = []
        watch = watcher(it, applied)
        it.app.paths.own_config.write_text(json.dumps(SPEND))
        change = await watch.check_now()
        assert change and change.paths == ("agents.defaults.spend",)
        it.app.paths.own_config.unlink()
        with pytest.raises(ConfigError, match="the file is gone") as caught:
            await watch.check_now()
        assert caught.value.file == str(it.app.paths.own_config)
        assert len(applied) == 1


async def test_watcher_notices_loss_of_a_file_that_was_migrated(tmp_path: Path) -> None:
    agents = {"defaults": {"model": "mock/mock-1", **SPEND["agents"]["defaults"]}}
    async with run(tmp_path, config={"agents": agents}) as it:
        watch = watcher(it, [])
        assert move_own_settings(it.app.paths, {}) == ["agents.defaults.spend"]
        change = await watch.check_now()
        assert change and change.paths == ("meta",)
        it.app.paths.own_config.unlink()
        with pytest.raises(ConfigError, match="the file is gone"):
            await watch.check_now()


def test_broken_homarus_json_starts_with_the_last_good(tmp_path: Path) -> None:
    paths = Paths.find({}, tmp_path)
    paths.state.mkdir()
    spend = ("agents", "defaults", "spend", "perDayUsd")
    write_config(paths, {}, lambda tree: set_path(tree, spend, 5))
    write_config(paths, {}, lambda tree: set_path(tree, spend, 6))
    save_last_good(paths.state, load_config(paths, {}))
    paths.own_config.write_text("{")
    loaded, problem = load_config_or_last_good(paths, {})
    assert loaded.config.agents.defaults.spend.per_day_usd == 6
    assert problem and problem.file == str(paths.own_config)
    assert restore_command(paths, {}) == "cp ~/.openclaw/homarus.json.bak ~/.openclaw/homarus.json"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("OPENCLAW_STATE_DIR", raising=False)
    monkeypatch.delenv("OPENCLAW_CONFIG_PATH", raising=False)
    (tmp_path / ".openclaw").mkdir()
    return tmp_path / ".openclaw"


def call(*args: str) -> Any:
    return CliRunner().invoke(config_command, args)


def test_config_commands_use_both_files(home: Path) -> None:
    (home / "openclaw.json").write_text("{logging: {level: 'debug'}}")
    done = call("set", "agents.defaults.spend.perDayUsd", "5")
    assert done.output == "agents.defaults.spend.perDayUsd is set in ~/.openclaw/homarus.json\n"
    assert call("get", "agents.defaults.spend.perDayUsd").output == "5\n"
    assert call("get", "logging.level").output == "debug\n"
    assert call("validate").output == "~/.openclaw/openclaw.json is valid\n"
    done = call("unset", "agents.defaults.spend")
    assert done.output == "agents.defaults.spend is removed in ~/.openclaw/homarus.json\n"


def test_own_key_in_openclaw_json_is_found_and_migrated(home: Path) -> None:
    (home / "openclaw.json").write_text(json.dumps(SPEND))
    found = CliRunner().invoke(doctor_command).output
    assert "OpenClaw cannot read agents.defaults.spend: unknown key" in found
    assert "homarus config migrate" in call("validate").output
    assert call("migrate").output == "moved to ~/.openclaw/homarus.json: agents.defaults.spend\n"
    assert read(home / "homarus.json") == SPEND
    assert "OpenClaw cannot read" not in CliRunner().invoke(doctor_command).output
    assert call("migrate").output == "there is nothing to move to ~/.openclaw/homarus.json\n"
