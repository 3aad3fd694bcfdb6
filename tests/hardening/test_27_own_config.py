"""Settings that OpenClaw does not know are in `homarus.json`, so that it can read its own file."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from homarus.config.config_files import ConfigTexts
from homarus.config.json5_document import KeyPath, Value
from homarus.config.known_keys import OWN_KEYS, check_value, openclaw_root
from homarus.config.load import examine_config, load_config
from homarus.config.own_config import overlay_own
from homarus.config.own_keys import check_own_tree, describe_openclaw_problems, split_own
from homarus.config.paths import Paths
from homarus.config.tree_edit import parse_path, set_path, unset_path
from homarus.config.write import ConfigWrite, move_own_settings, read_own_tree, write_config
from homarus.core.errors import ConfigError, UserError

SPEND = {"agents": {"defaults": {"spend": {"perDayUsd": 5.0}}}}


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    (tmp_path / ".openclaw").mkdir()
    return Paths.find({}, tmp_path)


@pytest.fixture
def put(paths: Paths) -> Callable[..., None]:
    def write(shared: Any = None, own: Any = None) -> None:
        for file, tree in ((paths.config, shared), (paths.own_config, own)):
            if tree is not None:
                text = tree if isinstance(tree, str) else json.dumps(tree)
                file.write_text(text, encoding="utf-8")

    return write


def read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def set_key(paths: Paths, key: str, value: Value) -> ConfigWrite:
    return write_config(paths, {}, lambda tree: set_path(tree, parse_path(key), value))


def sample_of(line: str) -> tuple[KeyPath, Value]:
    """Make a path and a valid value for a line of the list of own keys."""
    path, _, kind = line.partition(": ")
    names = path.replace("<key>", "some-key").replace("[]", ".[]").split(".")
    steps = tuple(0 if name == "[]" else name for name in names)
    samples: dict[str, Value] = {
        "string": "x",
        "boolean": True,
        "integer": 7,
        "number": 7.5,
        "map": {},
    }
    samples |= {"object": {}, "[string]": ["x"]}
    first = kind.split(" ")[0]
    return steps, json.loads(first) if first[0] == '"' else samples[first]


def leaf_lines() -> list[str]:
    return [line for line in OWN_KEYS if not line.endswith((": map", "strict"))]


def tree_at(path: KeyPath, value: Value) -> dict[str, Any]:
    tree: Value = {"agents": {"list": [{"id": "main"}]}} if "list" in path else {}
    merged: dict[str, Any] = set_path(tree, path, value)
    return merged


@pytest.mark.parametrize("line", leaf_lines())
def test_every_own_key_is_written_to_homarus_json(line: str) -> None:
    path, value = sample_of(line)
    tree = tree_at(path, value)
    parts = split_own(tree, {}, {}, move=False)
    assert list(check_value(parts.shared, openclaw_root(), ())) == []
    assert list(check_own_tree(parts.own)) == []
    assert parts.own
    assert overlay_own(parts.shared, parts.own) == tree


def test_own_key_in_homarus_json_has_effect(put: Any, paths: Paths) -> None:
    put({"logging": {"level": "debug"}}, SPEND)
    loaded = load_config(paths, {})
    assert loaded.config.agents.defaults.spend.per_day_usd == 5
    assert loaded.config.logging.level == "debug"
    assert loaded.has_own


def test_own_key_in_openclaw_json_is_still_read(put: Any, paths: Paths) -> None:
    put(SPEND)
    assert load_config(paths, {}).config.agents.defaults.spend.per_day_usd == 5


def test_own_key_in_both_files_homarus_json_wins(put: Any, paths: Paths) -> None:
    put(SPEND, {"agents": {"defaults": {"spend": {"perDayUsd": 2}}}})
    assert load_config(paths, {}).config.agents.defaults.spend.per_day_usd == 2


def test_own_variable_is_substituted(put: Any, paths: Paths) -> None:
    put({}, {"auth": {"clients": {"x": {"clientSecret": "${SECRET}"}}}})
    client = load_config(paths, {"SECRET": "s3"}).config.auth.clients["x"]
    assert client.client_secret == "s3"


@pytest.mark.parametrize(
    ("own", "says"),
    [
        ('{\n  logging: {level: "debug"}}', "homarus.json:2: logging: not a setting of homarus"),
        ("{\n\n  agents: {defaults: {spned: {}}}}", "homarus.json:3: agents.defaults.spned: unkn"),
        ('{agents: {defaults: {spend: {perDayUsd: "5"}}}}', "homarus.json:1: agents.defaults.sp"),
        ("[]", "homarus.json:1: the file must be one object"),
        ("{,}", "homarus.json:1"),
    ],
)
def test_error_in_homarus_json_names_that_file(put: Any, paths: Paths, own: str, says: str) -> None:
    put({"agents": {"defaults": {"workspace": "~/w"}}}, own)
    with pytest.raises(ConfigError) as caught:
        load_config(paths, {})
    assert says in str(caught.value)


def test_error_in_agent_entry_names_line_of_homarus_json(put: Any, paths: Paths) -> None:
    agents = {"list": [{"id": "main"}, {"id": "ops"}]}
    own = '{agents: {list: [\n{id: "OPS", memorySearch: {provider: "nothing"}}]}}'
    put({"agents": agents}, own)
    with pytest.raises(ConfigError) as caught:
        load_config(paths, {})
    assert "homarus.json:2: agents.list[1].memorySearch.provider" in str(caught.value)


def test_agent_entry_without_agent_creates_no_agent(put: Any, paths: Paths) -> None:
    own = {"agents": {"list": [{"id": "gone", "heartbeat": {"enabled": True}}]}}
    put({"agents": {"list": [{"id": "main"}]}}, own)
    assert [entry.id for entry in load_config(paths, {}).config.agents.list] == ["main"]


def test_agent_entry_survives_edit_when_list_is_included(put: Any, paths: Paths) -> None:
    (paths.state / "list.json").write_text('[{"id": "ops"}]')
    entry = {"id": "ops", "memorySearch": {"provider": "none"}}
    put({"agents": {"list": {"$include": "list.json"}}}, {"agents": {"list": [entry]}})
    set_key(paths, "logging.level", "debug")
    assert read(paths.own_config) == {"agents": {"list": [entry]}}
    listed = load_config(paths, {}).config.agents.list
    assert listed[0].memory_search == {"provider": "none"}


def test_agent_entry_is_removed_with_its_agent(put: Any, paths: Paths) -> None:
    entry = {"id": "ops", "memorySearch": {"provider": "none"}}
    put({"agents": {"list": [{"id": "main"}, {"id": "ops"}]}}, {"agents": {"list": [entry]}})
    write_config(paths, {}, lambda tree: unset_path(tree, ("agents", "list", 1)))
    assert read(paths.own_config) == {}


def test_set_own_key_writes_homarus_json_alone(put: Any, paths: Paths) -> None:
    put('{logging: {level: "debug"}} // mine')
    written = set_key(paths, "agents.defaults.spend.perDayUsd", 3)
    assert written.file == paths.own_config
    assert read(paths.own_config) == {"agents": {"defaults": {"spend": {"perDayUsd": 3}}}}
    assert paths.config.read_text() == '{logging: {level: "debug"}} // mine'
    assert paths.own_config.stat().st_mode & 0o777 == 0o600


def test_set_own_key_keeps_comments_and_makes_backup(put: Any, paths: Paths) -> None:
    put({}, "{\n  // at most this\n  agents: {defaults: {spend: {perDayUsd: 1}}},\n}\n")
    assert set_key(paths, "agents.defaults.spend.perDayUsd", 3).kept_layout
    assert "// at most this" in paths.own_config.read_text()
    assert "perDayUsd: 1" in paths.own_config.with_name("homarus.json.bak").read_text()


def test_set_own_key_moves_it_out_of_openclaw_json(put: Any, paths: Paths) -> None:
    put({**SPEND, "logging": {"level": "debug"}})
    set_key(paths, "agents.defaults.spend.perDayUsd", 3)
    assert "agents" not in read(paths.config)
    assert read(paths.own_config) == {"agents": {"defaults": {"spend": {"perDayUsd": 3}}}}


def test_set_other_key_leaves_own_key_in_old_place(put: Any, paths: Paths) -> None:
    put(SPEND)
    set_key(paths, "logging.level", "debug")
    assert read(paths.config)["agents"] == SPEND["agents"]
    assert not paths.own_config.exists()


def test_unset_own_key_removes_it_from_both_files(put: Any, paths: Paths) -> None:
    put(SPEND, {"agents": {"defaults": {"spend": {"perDayUsd": 2}}}})
    write_config(paths, {}, lambda tree: unset_path(tree, ("agents", "defaults", "spend")))
    assert load_config(paths, {}).config.agents.defaults.spend.per_day_usd is None
    assert read(paths.own_config) == {}


def test_auth_mode_none_is_an_own_value(put: Any, paths: Paths) -> None:
    put({"gateway": {"auth": {"mode": "token", "token": "t"}}})
    set_key(paths, "gateway.auth.mode", "none")
    assert read(paths.own_config) == {"gateway": {"auth": {"mode": "none"}}}
    assert read(paths.config)["gateway"] == {"auth": {"token": "t"}}
    set_key(paths, "gateway.auth.mode", "password")
    assert read(paths.own_config) == {}
    assert read(paths.config)["gateway"]["auth"]["mode"] == "password"


def test_embedder_of_ours_is_an_own_value(put: Any, paths: Paths) -> None:
    put({})
    set_key(paths, "agents.defaults.memorySearch", {"provider": "none", "query": {"maxResults": 3}})
    defaults = read(paths.own_config)["agents"]["defaults"]
    assert defaults == {"memorySearch": {"provider": "none"}}
    assert read(paths.config)["agents"]["defaults"]["memorySearch"] == {"query": {"maxResults": 3}}


def test_migrate_moves_all_own_keys(put: Any, paths: Paths) -> None:
    put({**SPEND, "gateway": {"customBindHost": "::1", "port": 1234}})
    moved = move_own_settings(paths, {})
    assert moved == ["agents.defaults.spend", "gateway.customBindHost"]
    assert read(paths.own_config) == {**SPEND, "gateway": {"customBindHost": "::1"}}
    assert describe_openclaw_problems(read(paths.config)) == ()
    assert move_own_settings(paths, {}) == []


def test_set_value_that_openclaw_cannot_read_warns(put: Any, paths: Paths) -> None:
    put({})
    written = set_key(paths, "agents.defaults.model", "a/b")
    (text,) = written.unreadable
    assert text.startswith("OpenClaw cannot read agents.defaults.model: expected an object, found")
    assert text.endswith('(write {"primary": "a/b"})')
    assert set_key(paths, "agents.defaults.model", {"primary": "a/b"}).unreadable == ()
    assert set_key(paths, "logging.level", "debug").unreadable == ()


def test_own_key_in_openclaw_json_is_reported() -> None:
    (text,) = describe_openclaw_problems(SPEND)
    assert "agents.defaults.spend: unknown key" in text
    assert "homarus config migrate" in text


def test_hash_covers_both_files(put: Any, paths: Paths) -> None:
    put({}, SPEND)
    before = load_config(paths, {}).hash
    put(own={})
    assert load_config(paths, {}).hash != before
    assert ConfigTexts("{}").hash == ConfigTexts("{}", None).hash


def test_edited_tree_holds_both_files(put: Any, paths: Paths) -> None:
    put({"logging": {"level": "debug"}}, SPEND)
    tree, texts = read_own_tree(paths)
    assert tree == {**SPEND, "logging": {"level": "debug"}}
    assert examine_config(paths, {}, texts).raw == tree


def test_homarus_json_is_not_the_config_itself(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"homarus\.json"):
        Paths.find({"OPENCLAW_CONFIG_PATH": "~/homarus.json"}, tmp_path)
