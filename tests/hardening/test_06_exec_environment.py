"""A command's environment comes from lists of harmless names: the owner's and the model's."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from homarus.core.errors import ToolDeniedError, ToolError
from homarus.policy.approvals import ApprovalQuestion
from homarus.testing.approvals import AskingApprovals
from homarus.tools.exec.environment import DEFAULT_PATH, build_environment
from homarus.tools.tool import ToolContext
from tests.unit.tools.exec_builders import make_exec_tool, run_prepared

execute = make_exec_tool()

# Each makes a program load code, read other settings, or run another program.
RISKY_NAMES = """
    XDG_CONFIG_HOME XDG_CONFIG_DIRS XDG_DATA_HOME XDG_DATA_DIRS GIT_CONFIG_GLOBAL GIT_DIR
    GIT_SSH_COMMAND GIT_EXTERNAL_DIFF GIT_EXEC_PATH LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT
    DYLD_INSERT_LIBRARIES BASH_ENV ENV SHELLOPTS PS4 PROMPT_COMMAND IFS ZDOTDIR HOME PATH SHELL
    PYTHONPATH PYTHONSTARTUP PYTHONHOME PYTHONWARNINGS PYTHONBREAKPOINT NODE_OPTIONS NODE_PATH
    PERL5LIB PERL5OPT PERL5DB RUBYOPT RUBYLIB PAGER EDITOR VISUAL BROWSER MANPAGER LESSOPEN
    GREP_OPTIONS MAKEFLAGS CC CXX CFLAGS RUSTC_WRAPPER CARGO_HOME GOFLAGS GOPATH JAVA_TOOL_OPTIONS
    JAVA_HOME CLASSPATH MAVEN_OPTS GRADLE_OPTS NPM_CONFIG_PREFIX npm_config_userconfig PIP_INDEX_URL
    PIP_CONFIG_FILE UV_INDEX_URL VIRTUAL_ENV CURL_HOME WGETRC OPENSSL_CONF SSL_CERT_FILE
    SSLKEYLOGFILE http_proxy HTTPS_PROXY ALL_PROXY DOCKER_HOST DOCKER_CONFIG KUBECONFIG
    AWS_CONFIG_FILE ANSIBLE_CONFIG TAR_OPTIONS RSYNC_RSH SSH_ASKPASS SUDO_ASKPASS GCONV_PATH
    LOCPATH NLSPATH TZDIR TERMINFO TERMCAP TMPDIR PSQLRC VIMINIT EXINIT MYVIMRC INPUTRC WINEPREFIX
    HGRCPATH R_PROFILE LUA_INIT PHPRC ERL_AFLAGS DOTNET_STARTUP_HOOKS COMPLUS_Version A MY_VALUE
"""
RISKY = RISKY_NAMES.split()
SAFE = {"PATH": "/usr/bin", "HOME": "/home/me"}


@pytest.mark.parametrize("name", RISKY)
def test_requested_variable_outside_the_list_is_denied(name: str) -> None:
    with pytest.raises(ToolDeniedError, match=f"env may not set {name}"):
        build_environment({name: "x"}, SAFE)


@pytest.mark.parametrize("name", [name for name in RISKY if name not in {*SAFE, "SHELL", "TMPDIR"}])
def test_variable_outside_the_list_is_not_inherited(name: str) -> None:
    assert build_environment({}, SAFE | {name: "/evil"}) == SAFE


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LANG", "../../tmp/evil"),
        ("LC_ALL", "/tmp/evil"),
        ("LANGUAGE", "de:../evil"),
        ("TZ", ":/tmp/evil"),
        ("TERM", "x\ny"),
        ("COLUMNS", "$(touch x)"),
        ("CI", "é"),
    ],
)
def test_allowed_variable_with_a_path_or_odd_text_is_denied(name: str, value: str) -> None:
    with pytest.raises(ToolDeniedError, match=f"env may not set {name} to that value"):
        build_environment({name: value}, SAFE)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LANG", "de_DE.UTF-8"),
        ("LC_ALL", "C"),
        ("LANGUAGE", "de:en"),
        ("TZ", "Europe/Berlin"),
        ("TERM", "xterm-256color"),
        ("NO_COLOR", ""),
        ("ARG_TEXT", "any\ntext / with ..; $(x)"),
    ],
)
def test_variable_on_the_list_reaches_the_command(name: str, value: str) -> None:
    assert build_environment({name: value}, SAFE) == SAFE | {name: value}


@pytest.mark.parametrize(
    ("path", "passed"),
    [
        (".:/usr/bin:bin::/bin:", "/usr/bin:/bin"),
        ("~/bin:/bin", "/bin"),
        (".", DEFAULT_PATH),
        ("", DEFAULT_PATH),
    ],
)
def test_inherited_path_has_no_relative_folder(path: str, passed: str) -> None:
    assert build_environment({}, {"PATH": path})["PATH"] == passed


async def yes(_question: ApprovalQuestion) -> bool:
    return True


async def run(workspace: Path, command: str, **more: Any) -> None:
    ctx = ToolContext("agent:main:main", "main", workspace, approvals=AskingApprovals(yes))
    await run_prepared(execute, ctx, {"command": command} | more)


async def test_git_status_reads_no_settings_that_the_model_chose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True, timeout=30)
    evil = tmp_path / "evil" / "git" / "config"
    evil.parent.mkdir(parents=True)
    evil.write_text('[core]\n\tfsmonitor = "touch ran; false"\n')
    settings = str(tmp_path / "evil")
    with pytest.raises(ToolDeniedError):
        await run(tmp_path, "git status", env={"XDG_CONFIG_HOME": settings})
    monkeypatch.setenv("XDG_CONFIG_HOME", settings)
    await run(tmp_path, "git status")
    assert not (tmp_path / "ran").exists()


async def test_program_in_the_workspace_does_not_replace_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = tmp_path / "ls"
    planted.write_text("#!/bin/sh\ntouch ran\n")
    planted.chmod(0o755)
    monkeypatch.setenv("PATH", ".:/usr/bin:/bin")
    await run(tmp_path, "ls")
    assert not (tmp_path / "ran").exists()


def test_name_that_is_no_name_is_refused() -> None:
    for name in ("ARG_\n", "ARG_=", "ARG_é", ""):
        with pytest.raises(ToolError):
            build_environment({name: "x"}, SAFE)
