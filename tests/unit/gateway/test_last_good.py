"""The config a gateway falls back on."""

import json
from functools import partial
from pathlib import Path

import pytest

from homarus.config.load import load_config
from homarus.config.paths import Paths
from homarus.config.tree_edit import apply_merge_patch
from homarus.config.write import write_config
from homarus.core.errors import ConfigError
from homarus.gateway.last_good import (
    FILE,
    load_config_or_last_good,
    load_last_good,
    restore_command,
    save_last_good,
)

ENV = {"TOKEN": "from-the-environment"}
GOOD = {"gateway": {"auth": {"token": "${TOKEN}"}}, "tools": {"deny": ["exec"]}}


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    (tmp_path / ".openclaw").mkdir()
    return Paths.find({"HOME": str(tmp_path)})


def put(paths: Paths, text: object) -> None:
    said = text if isinstance(text, str) else json.dumps(text)
    paths.config.write_text(said, encoding="utf-8")


def test_last_good_config_is_saved_as_written_with_owner_mode(paths: Paths) -> None:
    put(paths, GOOD)
    save_last_good(paths.state, load_config(paths, ENV))
    file = paths.state / FILE
    assert json.loads(file.read_text()) == GOOD and "from-the" not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    before = file.stat().st_ino
    save_last_good(paths.state, load_config(paths, ENV))
    assert file.stat().st_ino == before  # the same is not written again


def test_last_good_config_contains_its_includes(paths: Paths) -> None:
    put(paths, '{"$include": "./more.json"}')
    (paths.state / "more.json").write_text('{"tools": {"deny": ["exec"]}}')
    save_last_good(paths.state, load_config(paths, {}))
    (paths.state / "more.json").unlink()
    loaded, problem = load_config_or_last_good(paths, {})
    assert loaded.config.tools.deny == ("exec",) and problem is not None


def test_load_uses_a_valid_file_and_reports_a_broken_one(paths: Paths) -> None:
    put(paths, GOOD)
    save_last_good(paths.state, load_config(paths, ENV))
    put(paths, {"tools": {"deny": ["write"]}})
    loaded, problem = load_config_or_last_good(paths, ENV)
    assert loaded.config.tools.deny == ("write",) and problem is None
    put(paths, "{")
    loaded, problem = load_config_or_last_good(paths, ENV)
    assert loaded.config.gateway.auth.token == "from-the-environment"
    assert problem is not None and "openclaw.json" in problem.message


def test_last_good_config_with_unset_variable_is_not_used(paths: Paths) -> None:
    put(paths, GOOD)
    save_last_good(paths.state, load_config(paths, ENV))
    put(paths, "{")
    assert load_last_good(paths, {}) is None
    with pytest.raises(ConfigError, match="openclaw"):
        load_config_or_last_good(paths, {})


def test_last_good_config_in_read_only_folder_is_skipped(
    paths: Paths, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(paths, GOOD)
    (tmp_path / "file").write_text("")
    save_last_good(tmp_path / "file", load_config(paths, ENV))
    assert "not kept aside" in caplog.text


def test_newest_valid_backup_is_offered(paths: Paths) -> None:
    for width in (2, 3, 4):
        new = {"agents": {"defaults": {"maxConcurrent": width}}}
        write_config(paths, {}, partial(apply_merge_patch, patch=new))
    backup = paths.config.with_name("openclaw.json.bak")
    backup.write_text("{ spoilt")
    put(paths, '{"agnts": 1}')
    assert (
        restore_command(paths, {}) == "cp ~/.openclaw/openclaw.json.bak.1 ~/.openclaw/openclaw.json"
    )
    with pytest.raises(ConfigError) as refused:
        load_config_or_last_good(paths, {})
    assert "did you mean agents" in refused.value.fix
    assert "openclaw.json.bak.1" in refused.value.fix and "homarus doctor" in refused.value.fix
    paths.config.with_name("openclaw.json.bak.1").unlink()
    assert restore_command(paths, {}) == ""
