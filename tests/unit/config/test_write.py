"""Changing the file on disk."""

import errno
import fcntl
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from homarus import __version__
from homarus.config import write as module
from homarus.config.change_log import FILE
from homarus.config.load import load_config
from homarus.config.paths import Paths
from homarus.config.redaction import REDACTED
from homarus.config.tree_edit import apply_merge_patch, parse_path, set_path, unset_path
from homarus.config.write import ConfigWrite, write_config
from homarus.core.errors import ConfigError, ConflictError, DiskFullError, StoreError, UserError

Put = Callable[..., Path]


def put_at(paths: Paths, path: str, value: Any, **rest: Any) -> ConfigWrite:
    steps = parse_path(path)
    return write_config(paths, {}, lambda tree: set_path(tree, steps, value), **rest)


def listing(paths: Paths) -> list[str]:
    return sorted(file.name for file in paths.state.iterdir() if file.name != FILE)


def drop(paths: Paths, path: str) -> ConfigWrite:
    steps = parse_path(path)
    return write_config(paths, {}, lambda tree: unset_path(tree, steps))


def test_write_config_first_creates_private_file(tmp_path: Path) -> None:
    paths = Paths.find({}, tmp_path)
    written = put_at(paths, "agents.defaults.workspace", "~/w", at_ms=1_700_000_000_123)
    assert json.loads(paths.config.read_text()) == {
        "agents": {"defaults": {"workspace": "~/w"}},
        "meta": {
            "lastTouchedVersion": __version__,
            "lastTouchedAt": "2023-11-14T22:13:20.123Z",
        },
    }
    assert stat.S_IMODE(paths.config.stat().st_mode) == 0o600
    assert written.hash == load_config(paths, {}).hash
    assert listing(paths) == ["openclaw.json"]


def test_write_config_keeps_comments_variables_and_includes(paths: Paths, put: Put) -> None:
    put("{list: [{id: 'a'}]}", "a.json5")
    put(
        "// mine\n{\n  agents: { $include: './a.json5' }, // theirs\n"
        "  models: { providers: { x: { apiKey: '${KEY}' } } }, // no secret here\n}\n"
    )
    written = write_config(
        paths, {}, lambda tree: set_path(tree, ("logging", "level"), "debug"), at_ms=1
    )
    assert paths.config.read_text() == (
        "// mine\n{\n  agents: { $include: './a.json5' }, // theirs\n"
        "  models: { providers: { x: { apiKey: '${KEY}' } } }, // no secret here\n"
        '  logging: {\n    "level": "debug"\n  },\n'
        f'  meta: {{\n    "lastTouchedVersion": "{__version__}",\n'
        '    "lastTouchedAt": "1970-01-01T00:00:00.001Z"\n  },\n}\n'
    )
    assert written.changed == ("logging",)
    assert written.kept_layout


def test_write_config_keeps_five_backups(paths: Paths, put: Put) -> None:
    put("{logging: {level: 'silent'}}").chmod(0o644)
    levels = ["fatal", "error", "warn", "info", "debug", "trace"]
    for level in levels:
        put_at(paths, "logging.level", level)
    backups = [paths.state / f"openclaw.json.bak{end}" for end in ("", ".1", ".2", ".3", ".4")]
    kept = [next(one for one in levels if one in file.read_text()) for file in backups]
    assert kept == ["debug", "info", "warn", "error", "fatal"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in backups} == {0o600}
    assert listing(paths) == sorted(["openclaw.json", *(f.name for f in backups)])


def test_write_config_without_change_writes_nothing(paths: Paths, put: Put) -> None:
    put("{logging: {level: 'info'}}")
    written = put_at(paths, "logging.level", "info")
    assert written.changed == ()
    assert paths.config.read_text() == "{logging: {level: 'info'}}"
    assert listing(paths) == ["openclaw.json"]


def test_write_config_invalid_change_leaves_file_unchanged(paths: Paths, put: Put) -> None:
    put("{logging: {level: 'info'}}")
    for path, value in (
        ("logging.level", "loud"),
        ("logging.lvel", "info"),
        ("browser.enabled", 1),
    ):
        with pytest.raises(ConfigError) as caught:
            put_at(paths, path, value)
        assert caught.value.key == path
    assert paths.config.read_text() == "{logging: {level: 'info'}}"
    assert listing(paths) == ["openclaw.json"]


def test_write_config_may_fix_one_of_two_errors(paths: Paths, put: Put) -> None:
    put("{one: 1, two: 2}")
    drop(paths, "one")
    with pytest.raises(ConfigError, match="three"):
        put_at(paths, "three", 3)
    drop(paths, "two")
    assert load_config(paths, {}).exists


def test_write_config_unreadable_file_is_not_replaced(paths: Paths, put: Put) -> None:
    put("{ broken")
    with pytest.raises(ConfigError):
        put_at(paths, "logging.level", "info")
    assert paths.config.read_text() == "{ broken"


def test_write_config_unset_variable_is_no_error(paths: Paths, put: Put) -> None:
    put("{models: {providers: {x: {apiKey: '${NOT_HERE}'}}}}")
    put_at(paths, "logging.level", "debug")
    assert "${NOT_HERE}" in paths.config.read_text()


def test_write_config_other_hash_raises_conflict(paths: Paths, put: Put) -> None:
    put("{}")
    seen = load_config(paths, {}).hash
    put_at(paths, "logging.level", "debug", if_hash=seen)
    with pytest.raises(ConflictError):
        put_at(paths, "logging.level", "info", if_hash=seen)
    assert load_config(paths, {}).config.logging.level == "debug"


def test_write_config_missing_file_has_a_hash(paths: Paths) -> None:
    put_at(paths, "logging.level", "debug", if_hash=load_config(paths, {}).hash)
    assert load_config(paths, {}).exists


def test_write_config_concurrent_change_raises_conflict(paths: Paths, put: Put) -> None:
    put("{}")

    def change(tree: dict[str, Any]) -> Any:
        paths.config.write_text("{logging: {level: 'trace'}}")
        return set_path(tree, ("logging", "level"), "debug")

    with pytest.raises(ConflictError):
        write_config(paths, {}, change)
    assert paths.config.read_text() == "{logging: {level: 'trace'}}"


def test_write_config_concurrent_creation_raises_conflict(paths: Paths) -> None:
    def change(tree: dict[str, Any]) -> Any:
        paths.config.write_text("{}")
        return set_path(tree, ("logging", "level"), "debug")

    with pytest.raises(ConflictError):
        write_config(paths, {}, change)
    assert paths.config.read_text() == "{}"


def test_write_config_locked_file_raises_conflict(
    paths: Paths, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LOCK_WAIT_S", 0.0)
    with put("{}").open() as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(ConflictError, match="locked"):
            put_at(paths, "logging.level", "debug")


@pytest.mark.parametrize(
    ("code", "kind"),
    [(errno.ENOSPC, DiskFullError), (errno.EDQUOT, DiskFullError), (errno.EIO, StoreError)],
)
def test_write_config_full_disk_leaves_the_old_file(
    paths: Paths, put: Put, monkeypatch: pytest.MonkeyPatch, code: int, kind: type[StoreError]
) -> None:
    put("{} // old")

    def fail(_descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(kind, match="was not changed"):
        put_at(paths, "logging.level", "debug")
    assert paths.config.read_text() == "{} // old"
    assert listing(paths) == ["openclaw.json"]


def test_write_config_linked_file_stays_a_link(paths: Paths, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "claw.json5"
    real.parent.mkdir()
    real.write_text("{} // mine")
    paths.config.symlink_to(real)
    put_at(paths, "logging.level", "debug")
    assert paths.config.is_symlink()
    assert "// mine" in real.read_text()
    assert (real.parent / "claw.json5.bak").read_text() == "{} // mine"


def test_write_config_value_next_to_include_wins(paths: Paths, put: Put) -> None:
    put("{defaults: {workspace: 'theirs'}}", "a.json5")
    put("{agents: {$include: 'a.json5'}}")
    put_at(paths, "agents.defaults.workspace", "mine")
    assert load_config(paths, {}).config.agents.defaults.workspace == "mine"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("tools.deny", ["z"]),
        ("agents.list[0]", {"id": "b"}),
        ("agents.defaults", {"workspace": "x"}),
    ],
)
def test_write_config_change_overridden_by_include_raises(
    paths: Paths, put: Put, path: str, value: Any
) -> None:
    put(
        "{tools: {deny: ['x']}, agents: {list: [{id: 'a'}], defaults: {timeoutSeconds: 5}}}",
        "base.json5",
    )
    put("{$include: 'base.json5'}")
    with pytest.raises(ConfigError, match="includes sets this too"):
        put_at(paths, path, value)
    assert paths.config.read_text() == "{$include: 'base.json5'}"


def test_write_config_cannot_remove_included_value(paths: Paths, put: Put) -> None:
    put("{tools: {profile: 'full'}}", "base.json5")
    put("{$include: 'base.json5', tools: {profile: 'coding'}}")
    with pytest.raises(ConfigError, match="includes sets this too"):
        drop(paths, "tools.profile")


def test_write_config_can_set_an_include(paths: Paths, put: Put) -> None:
    put("{defaults: {workspace: 'theirs'}}", "a.json5")
    put("{}")
    put_at(paths, "agents", {"$include": "a.json5"})
    assert load_config(paths, {}).config.agents.defaults.workspace == "theirs"
    with pytest.raises(ConfigError, match="no file"):
        put_at(paths, "agents.$include", "gone.json5")


def test_write_config_applies_a_merge_patch(paths: Paths, put: Put) -> None:
    put("{agents: {list: [{id: 'a', name: 'A'}]}, logging: {level: 'info'}}")
    patch = {"agents": {"list": [{"id": "a", "name": "B"}, {"id": "c"}]}, "logging": None}
    written = write_config(paths, {}, lambda tree: apply_merge_patch(tree, patch, True))
    assert [agent.name for agent in load_config(paths, {}).config.agents.list] == ["B", None]
    assert set(written.changed) == {"agents.list", "logging"}


def test_write_config_restores_redacted_secret(paths: Paths, put: Put) -> None:
    put("{models: {providers: {x: {apiKey: 'sk-1', api: 'ollama'}}}}")
    put_at(paths, "models.providers.x", {"apiKey": REDACTED, "baseUrl": "http://h"})
    entry = load_config(paths, {}).config.models.providers["x"]
    assert (entry.api_key, entry.base_url, entry.api) == ("sk-1", "http://h", None)
    with pytest.raises(UserError, match="hidden"):
        put_at(paths, "models.providers.y.apiKey", REDACTED)


def test_write_config_names_unimplemented_keys(paths: Paths) -> None:
    assert put_at(paths, "channels.zalo.botToken", "x").unbuilt == ("channels.zalo",)
    assert put_at(paths, "logging.level", "debug").unbuilt == ()


@pytest.mark.parametrize("value", [[], 5, None])
def test_write_config_non_object_raises_config_error(paths: Paths, value: Any) -> None:
    with pytest.raises(ConfigError, match="one object"):
        write_config(paths, {}, lambda _tree: value)


def test_write_config_lone_surrogate_raises_error(paths: Paths, put: Put) -> None:
    put("{}")
    for text in ("\ud800", "a\0b"):
        with pytest.raises(UserError):
            put_at(paths, "logging.file", text)
    assert paths.config.read_text() == "{}"
