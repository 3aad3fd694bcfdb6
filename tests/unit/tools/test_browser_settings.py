"""How a browser is started: profiles, program, arguments, and settings that are refused."""

from pathlib import Path
from typing import Any

import pytest

from homarus.config.schema import Config
from homarus.core.errors import ToolError
from homarus.tools.browser.settings import (
    browser_env,
    check_user,
    find_executable,
    launch_args,
    profile_names,
    resolve_browser,
)


def resolve(section: dict[str, Any], profile: str = "") -> Any:
    config = Config.model_validate({"browser": section})
    return resolve_browser(config.browser, Path("/state"), "main", profile)


def test_default_profile_is_isolated_and_headless() -> None:
    settings = resolve({})
    assert settings.user_data == Path("/state/browser/main/openclaw/user-data")
    assert settings.headless and not settings.no_sandbox


def test_configured_profile_has_a_folder_of_its_own() -> None:
    section = {"profiles": {"work": {"cdpPort": 18801, "color": "#FF0000"}}, "headless": False}
    settings = resolve(section, "work")
    assert settings.folder == Path("/state/browser/main/work") and not settings.headless
    assert resolve(section | {"defaultProfile": "work"}).profile == "work"
    config = Config.model_validate({"browser": section | {"defaultProfile": "work"}})
    assert profile_names(config.browser) == ("work", "openclaw")


@pytest.mark.parametrize(
    ("section", "profile", "message"),
    [
        ({"enabled": False}, "", "browser.enabled"),
        ({"attachOnly": True}, "", "remove browser.attachOnly"),
        ({"cdpUrl": "http://127.0.0.1:9222"}, "", "remove browser.cdpUrl"),
        ({"defaultProfile": "chrome"}, "", "browser.defaultProfile"),
        ({}, "chrome", "does not control"),
        ({}, "work", "there is no profile work"),
        ({"profiles": {"../x": {"cdpPort": 1}}}, "../x", "cannot be the name"),
        ({"profiles": {"a": {"cdpUrl": "http://b"}}}, "a", "browser.profiles.a.cdpUrl"),
        ({"profiles": {"a": {"driver": "extension"}}}, "a", "browser.profiles.a.driver"),
    ],
)
def test_setting_that_cannot_be_obeyed_is_refused(
    section: dict[str, Any], profile: str, message: str
) -> None:
    with pytest.raises(ToolError) as raised:
        resolve(section, profile)
    assert message in str(raised.value)


def test_root_without_no_sandbox_is_refused_with_the_key() -> None:
    with pytest.raises(ToolError) as raised:
        check_user(resolve({}), user_id=0)
    assert "browser.noSandbox: true" in str(raised.value)
    check_user(resolve({"noSandbox": True}), user_id=0)
    check_user(resolve({}), user_id=1000)


def test_program_is_found_in_the_path_or_named(tmp_path: Path) -> None:
    program = tmp_path / "chromium"
    with pytest.raises(ToolError) as raised:
        find_executable(resolve({}), {"PATH": str(tmp_path)})
    assert "apt-get install chromium" in str(raised.value)
    program.write_text("")
    program.chmod(0o755)
    assert find_executable(resolve({}), {"PATH": str(tmp_path)}) == str(program)
    assert find_executable(resolve({"executablePath": str(program)}), {}) == str(program)
    with pytest.raises(ToolError, match="executablePath"):
        find_executable(resolve({"executablePath": str(tmp_path)}), {})


def test_arguments_lead_every_connection_to_the_proxy() -> None:
    args = launch_args(4711)
    assert "--proxy-server=http://127.0.0.1:4711" in args
    assert "--proxy-bypass-list=<-loopback>" in args
    assert "--disable-quic" in args
    assert "--force-webrtc-ip-handling-policy=disable_non_proxied_udp" in args


def test_environment_of_the_browser_has_no_secrets() -> None:
    env = {"PATH": "/bin", "OPENAI_API_KEY": "secret", "DISPLAY": ":0", "HOME": "/home/user"}
    assert browser_env(resolve({}), env) == {
        "PATH": "/bin",
        "HOME": "/state/browser/main/openclaw/home",
    }
    assert browser_env(resolve({"headless": False}), env)["DISPLAY"] == ":0"
