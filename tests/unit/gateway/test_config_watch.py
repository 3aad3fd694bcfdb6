"""A config that changes while the gateway runs."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.config.load import LoadedConfig, load_config
from homarus.config.paths import Paths
from homarus.core.errors import ConfigError
from homarus.gateway.config_watch import (
    ConfigChange,
    ConfigWatcher,
    changed_paths,
    plan_change,
    reload_rule,
)
from homarus.testing.clock import FakeClock


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("agents.defaults.model.primary", "none"),
        ("agents.defaults.heartbeat.every", "hot"),
        ("agents", "none"),
        ("models.providers.x.baseUrl", "none"),
        ("tools.deny", "none"),
        ("gateway.reload.mode", "none"),
        ("gateway.remote.url", "none"),
        ("memory.backend", "none"),
        ("gateway.port", "restart"),
        ("gateway.auth.token", "restart"),
        ("channels.telegram.botToken", "hot"),
        ("cron.enabled", "hot"),
        ("hooks.gmail.account", "hot"),
        ("plugins.entries.x", "restart"),
        ("discovery.mdns", "restart"),
        ("somethingNew.x", "restart"),
        ("agentsX", "restart"),
    ],
)
def test_reload_rule_of_each_path(path: str, rule: str) -> None:
    assert reload_rule(path) == rule


def test_changed_paths_go_as_deep_as_both_sides_are_objects() -> None:
    before = {"a": {"b": 1, "c": [1]}, "d": None, "e": {"f": 1}}
    after = {"a": {"b": 2, "c": [1]}, "e": 5, "g": {"h": 1}}
    assert list(changed_paths(before, after)) == ["a.b", "d", "e", "g"]


@given(st.recursive(st.integers(), lambda v: st.dictionaries(st.text(max_size=3), v, max_size=3)))
def test_changed_paths_of_equal_configs_are_empty(tree: Any) -> None:
    assert list(changed_paths({"x": tree}, {"x": tree})) == []


class Home:
    """A config file, a watch on it, and what the watch told."""

    def __init__(self, folder: Path) -> None:
        self.paths = Paths.find({"HOME": str(folder), "OPENCLAW_STATE_DIR": str(folder / "s")})
        (folder / "s").mkdir()
        self.clock = FakeClock()
        self.taken: list[ConfigChange] = []
        self.refused: list[ConfigError] = []

    def write(self, config: object) -> None:
        text = config if isinstance(config, str) else json.dumps(config)
        self.paths.config.write_text(text, encoding="utf-8")

    def load(self) -> LoadedConfig:
        return load_config(self.paths, {})

    def watch(self, scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def take(change: ConfigChange) -> None:
            self.taken.append(change)

        def able(loaded: LoadedConfig) -> None:
            if loaded.config.gateway.bind == "lan":
                raise ConfigError("refusing to listen", key="gateway.bind")

        async def main() -> None:
            refuse = self.refused.append
            self.eye = ConfigWatcher(
                self.paths,
                {},
                self.load(),
                self.clock,
                apply=take,
                reject=refuse,
                check_startable=able,
            )
            async with asyncio.TaskGroup() as group:
                running = group.create_task(self.eye.run())
                await scene()
                running.cancel()

        asyncio.run(main())

    async def until(self, done: Callable[[], object]) -> None:
        """Let time pass until something has come of the change; loading is in a thread."""
        while not done():
            await self.clock.advance(0.25)
            await asyncio.sleep(0.001)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_changed_file_is_applied_once(home: Home) -> None:
    home.write({"agents": {"defaults": {"maxConcurrent": 4}}})

    async def scene() -> None:
        await home.clock.advance(5)
        home.write({"agents": {"defaults": {"maxConcurrent": 5}}})
        await home.until(lambda: home.taken)
        await home.clock.advance(30)

    home.watch(scene)
    (change,) = home.taken
    assert change.paths == ("agents.defaults.maxConcurrent",) and change.action == "apply"
    assert change.loaded.config.agents.defaults.max_concurrent == 5
    assert not home.refused


def test_invalid_file_changes_nothing_until_it_is_valid(home: Home) -> None:
    home.write({})

    async def scene() -> None:
        home.write("{ agents: ")
        await home.until(lambda: home.refused)
        assert not home.taken
        home.write({"tools": {"deny": ["exec"]}})
        await home.until(lambda: home.taken)

    home.watch(scene)
    assert "openclaw.json" in home.refused[0].message
    assert home.taken[0].paths == ("tools",)


def test_file_being_written_is_read_when_quiet(home: Home) -> None:
    home.write({})

    async def scene() -> None:
        for n in range(1, 6):  # each within the quiet time of the one before
            home.write({"gateway": {"reload": {"debounceMs": 1000 + n}}})
            await home.clock.advance(0.25)
        await home.until(lambda: home.taken)

    home.watch(scene)
    (change,) = home.taken
    assert change.loaded.config.gateway.reload.debounce_ms == 1005


def test_included_file_is_watched_too(home: Home) -> None:
    home.write('{"$include": "./more.json"}')
    more = home.paths.config.parent / "more.json"
    more.write_text('{"tools": {"deny": ["exec"]}}')

    async def scene() -> None:
        more.write_text('{"tools": {"deny": ["exec", "write"]}}')
        await home.until(lambda: home.taken)

    home.watch(scene)
    assert home.taken[0].loaded.config.tools.deny == ("exec", "write")


def test_linked_config_is_followed(home: Home, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.json"
    real.write_text("{}")
    home.paths.config.symlink_to(real)

    async def scene() -> None:
        real.write_text('{"tools": {"deny": ["exec"]}}')
        await home.until(lambda: home.taken)

    home.watch(scene)


def test_changed_paths_of_new_endpoints_need_no_restart() -> None:
    after = {"gateway": {"http": {"endpoints": {"responses": {"enabled": True}}}}}
    for before, changed in (({}, after), (after, {})):
        paths = list(changed_paths(before, changed))
        assert paths == ["gateway.http.endpoints.responses"]
        assert [reload_rule(path) for path in paths] == ["none"]
    [path] = changed_paths({}, {"gateway": {"http": {"endpoints": {"mcp": {"enabled": True}}}}})
    assert reload_rule(path) == "restart"


@pytest.mark.parametrize(
    ("mode", "change", "action", "ignored"),
    [
        ("hybrid", {"gateway": {"port": 1}}, "restart", ()),
        ("hybrid", {"tools": {"deny": ["exec"]}}, "apply", ()),
        ("restart", {"tools": {"deny": ["exec"]}}, "restart", ()),
        ("hot", {"gateway": {"port": 1}}, "apply", ("gateway.port",)),
        ("off", {"tools": {"deny": ["exec"]}}, "ignore", ()),
    ],
)
def test_reload_mode_decides_what_is_applied(
    home: Home, mode: str, change: dict[str, Any], action: str, ignored: tuple[str, ...]
) -> None:
    reload = {"gateway": {"reload": {"mode": mode}}}
    home.write(reload)
    before = home.load()
    home.write(change | {"gateway": {**reload["gateway"], **change.get("gateway", {})}})
    found = plan_change(before, home.load())
    assert (found.action, found.ignored) == (action, ignored)


def test_check_now_applies_a_change_at_once(home: Home) -> None:
    home.write({})

    async def scene() -> None:
        assert await home.eye.check_now() is None
        home.write({"tools": {"deny": ["exec"]}})
        change = await home.eye.check_now()
        assert change and change.paths == ("tools",) and home.taken == [change]
        assert await home.eye.check_now() is change  # taken once, told as often as asked
        await home.clock.advance(30)

    home.watch(scene)
    assert len(home.taken) == 1 and home.clock.slept[0] == 0.5


def test_check_now_raises_for_an_invalid_change(home: Home) -> None:
    home.write({})

    async def scene() -> None:
        home.write("{ agents: ")
        for _ in range(2):
            with pytest.raises(ConfigError, match=r"openclaw\.json"):
                await home.eye.check_now()
        home.write({"tools": {"deny": ["exec"]}})
        assert await home.eye.check_now()

    home.watch(scene)
    assert len(home.refused) == 1 and len(home.taken) == 1


def test_config_text_is_checked_without_being_applied(home: Home) -> None:
    home.write({})

    async def scene() -> None:
        home.eye.check('{"tools": {"deny": ["exec"]}}')
        for text in ("{", '{"nosuch": 1}', '{"logging": {"file": "${UNSET}"}}'):
            with pytest.raises(ConfigError):
                home.eye.check(text)
        with pytest.raises(ConfigError, match="refusing to listen"):
            home.eye.check('{"gateway": {"bind": "lan"}}')
        assert await home.eye.check_now() is None

    home.watch(scene)


def test_ignored_change_counts_when_the_mode_changes(home: Home) -> None:
    home.write({"gateway": {"reload": {"mode": "off"}}})

    async def scene() -> None:
        home.write({"gateway": {"port": 1, "reload": {"mode": "off"}}})
        ignored = await home.eye.check_now()
        assert ignored and ignored.action == "ignore"
        home.write({"gateway": {"port": 1, "reload": {"mode": "hybrid"}}})
        change = await home.eye.check_now()
        assert change and change.action == "restart"
        assert change.paths == ("gateway.port", "gateway.reload.mode")

    home.watch(scene)


def test_deleted_file_keeps_the_config(home: Home) -> None:
    home.write({"gateway": {"auth": {"token": "t"}}})

    async def scene() -> None:
        home.paths.config.unlink()
        with pytest.raises(ConfigError, match="is gone"):
            await home.eye.check_now()
        home.write({"gateway": {"auth": {"token": "t"}}, "tools": {"deny": ["exec"]}})
        change = await home.eye.check_now()
        assert change and change.paths == ("tools",)

    home.watch(scene)


def test_first_config_file_is_applied(home: Home) -> None:
    async def scene() -> None:
        home.write({"tools": {"deny": ["exec"]}})
        change = await home.eye.check_now()
        assert change and change.action == "apply"

    home.watch(scene)
