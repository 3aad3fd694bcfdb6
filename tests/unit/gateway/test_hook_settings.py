"""Settings that refuse the start of webhooks, and those that only produce a warning."""

import json
from pathlib import Path
from typing import Any

import pytest

from homarus.config.check import check_config
from homarus.config.hooks_schema import HooksConfig
from homarus.config.ignored_settings import reason_without_effect
from homarus.config.load import load_config
from homarus.config.paths import Paths
from homarus.config.redaction import redact
from homarus.core.errors import ConfigError
from homarus.gateway.hooks.settings import (
    check_hooks,
    hook_refusals,
    hook_warnings,
    resolve_hook_settings,
)

TOKEN = "t" * 24
SECRET = "s" * 24


def make(**hooks: Any) -> HooksConfig:
    return HooksConfig.model_validate({"enabled": True, "token": TOKEN, **hooks})


def paths(folder: Path) -> Paths:
    return Paths.find({"HOME": str(folder), "OPENCLAW_STATE_DIR": str(folder)})


@pytest.mark.parametrize(
    ("hooks", "key"),
    [
        ({"token": None}, "hooks.token"),
        ({"token": "  "}, "hooks.token"),
        ({"token": "short"}, "hooks.token"),
        ({"token": "gateway-token-0123456"}, "hooks.token"),
        ({"presets": ["github"]}, "hooks.github.secret"),
        ({"presets": ["github"], "github": {"secret": "short"}}, "hooks.github.secret"),
        ({"presets": ["github"], "github": {"secret": TOKEN}}, "hooks.github.secret"),
        ({"allowedSessionKeyPrefixes": []}, "hooks.allowedSessionKeyPrefixes"),
        ({"allowedSessionKeyPrefixes": ["mail:"]}, "hooks.allowedSessionKeyPrefixes"),
        (
            {"allowedSessionKeyPrefixes": ["hook:"], "defaultSessionKey": "main"},
            "hooks.allowedSessionKeyPrefixes",
        ),
        ({"mappings": [{"sessionKey": "{{key}}"}]}, "hooks.mappings[].sessionKey"),
        ({"transformsDir": "../elsewhere"}, "hooks.transformsDir"),
        ({"transformsDir": "/etc"}, "hooks.transformsDir"),
    ],
)
def test_unsafe_setting_is_refused_with_its_key(
    tmp_path: Path, hooks: dict[str, Any], key: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        check_hooks(make(**hooks), paths(tmp_path), "gateway-token-0123456")
    assert caught.value.key == key and caught.value.fix


def test_disabled_hooks_refuse_nothing(tmp_path: Path) -> None:
    hooks = HooksConfig.model_validate({"token": "x", "transformsDir": "/etc"})
    assert not list(hook_refusals(hooks, paths(tmp_path)))
    assert not list(hook_warnings(hooks, paths(tmp_path)))


@pytest.mark.parametrize("path", ["/", "", "//", "/../x", "/a?b", "/a b", "/./a", "/%2e"])
def test_base_path_that_takes_too_much_is_a_config_error(tmp_path: Path, path: str) -> None:
    (tmp_path / "openclaw.json").write_text(json.dumps({"hooks": {"path": path}}), "utf-8")
    with pytest.raises(ConfigError, match=r"hooks\.path"):
        load_config(paths(tmp_path), {})


def test_unknown_preset_is_a_config_error(tmp_path: Path) -> None:
    (tmp_path / "openclaw.json").write_text(json.dumps({"hooks": {"presets": ["x"]}}), "utf-8")
    with pytest.raises(ConfigError, match="gmail"):
        load_config(paths(tmp_path), {})


def test_settings_of_the_gmail_watcher_are_reported_without_effect() -> None:
    gmail = {"account": "a@b.example", "pushToken": "p", "tailscale": {"mode": "funnel"}}
    hooks = {"enabled": True, "token": TOKEN, "gmail": gmail}
    unbuilt = check_config({"hooks": hooks}).unbuilt
    assert set(unbuilt) == {f"hooks.gmail.{name}" for name in gmail}
    assert all("gog" in reason_without_effect(path) for path in unbuilt)


def test_own_mappings_come_before_presets(tmp_path: Path) -> None:
    hooks = make(
        path="hooks/in/",
        presets=["github", "gmail"],
        github={"secret": SECRET},
        mappings=[{"id": "mine", "match": {"path": "/gmail/"}}, {"id": "any"}],
    )
    settings = resolve_hook_settings(hooks, paths(tmp_path))
    assert settings.path == "/hooks/in"
    assert [each.name for each in settings.find_mappings("gmail")] == ["mine", "any", "gmail"]
    assert [each.name for each in settings.find_mappings("other")] == ["any"]
    assert SECRET not in repr(settings) and TOKEN not in repr(settings) + repr(hooks)


def test_missing_token_is_named_in_a_log_too(tmp_path: Path) -> None:
    [exc] = hook_refusals(HooksConfig(enabled=True), paths(tmp_path))
    assert redact(str(exc)) == str(exc)  # what follows `token:` is not taken for a token


def test_mapping_of_a_built_in_path_is_named(tmp_path: Path) -> None:
    hooks = make(mappings=[{"match": {"path": "/wake"}}, {"match": {"path": "wakes"}}])
    [(text, fix)] = hook_warnings(hooks, paths(tmp_path))
    assert text.startswith("/hooks/wake is built in") and fix


def test_warnings_name_what_a_mapping_cannot_do(tmp_path: Path) -> None:
    folder = tmp_path / "hooks" / "transforms"
    folder.mkdir(parents=True)
    (folder / "good.py").write_text("def transform(values): return None\n", "utf-8")
    hooks = make(
        allowRequestSessionKey=True,
        mappings=[
            {"id": name, "transform": {"module": module}}
            for name, module in (("a", "old.ts"), ("b", "gone.py"), ("c", "good.py"))
        ],
    )
    texts = [text for text, _fix in hook_warnings(hooks, paths(tmp_path))]
    assert len(texts) == 3
    assert "allowRequestSessionKey" in texts[0]
    assert "JavaScript" in texts[1] and "gone.py" in texts[2]
