"""`homarus mcp`: servers in the configuration, their tools, and what is trusted of them."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from homarus.cli.doctor import command as doctor
from homarus.cli.mcp import command
from homarus.core.errors import HomarusError
from tests.unit.tools.mcp_builders import SERVERS, script

pytestmark = pytest.mark.timeout(120)
RAW = str(SERVERS / "raw.py")


def run(*args: str) -> Result:
    return CliRunner().invoke(command, args, standalone_mode=False)


def done(*args: str) -> str:
    result = run(*args)
    assert result.exception is None, result.exception
    return result.output


def refused(*args: str) -> HomarusError:
    error = run(*args).exception
    assert isinstance(error, HomarusError), error
    return error


def own_config(home: Path) -> Any:
    return json.loads((home / ".openclaw" / "homarus.json").read_text(encoding="utf-8"))


def test_mcp_add_tests_saves_and_lists_a_server(home: Path) -> None:
    assert "homarus mcp add NAME" in done("list")
    told = done("add", "raw", "--env", "EXTRA=other", "--", sys.executable, RAW)
    assert "raw is in" in told and "raw 1 has 2 tools:" in told and "raw__other" in told
    entry = {"command": sys.executable, "args": [RAW], "env": {"EXTRA": "other"}}
    assert own_config(home) == {"mcp": {"servers": {"raw": entry}}}
    assert f"2 tools, {sys.executable}" in done("list")
    [row] = json.loads(done("list", "--json"))["servers"]
    assert row["tools"] == ["raw__act", "raw__other"] and row["transport"] == "stdio"
    done("remove", "raw", "--yes")
    assert "No MCP server" in done() and not (home / ".openclaw/mcp/raw.json").exists()


def test_mcp_add_of_a_server_that_fails_saves_nothing(home: Path) -> None:
    error = refused("add", "raw", "--", sys.executable, RAW, "broken")
    assert "no configuration file" in error.message
    assert not (home / ".openclaw" / "homarus.json").exists()
    assert json.loads(done("list", "--json")) == {"servers": []}
    done("add", "raw", "--no-test", "--", sys.executable, RAW, "broken")
    assert "not seen yet" in done("list")


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (("add", "exec", "--", "sh"), "rules could not tell it from the tool"),
        (("add", "a__b", "--", "sh"), "is no name of a server"),
        (("add", "a"), "either a program or --url"),
        (("add", "a", "--url", "http://x", "--header", "Authorization"), "is not NAME=VALUE"),
        (("test", "none"), "unknown MCP server"),
        (("remove", "none"), "unknown MCP server"),
    ],
)
def test_mcp_command_refuses_what_is_wrong(home: Path, args: tuple[str, ...], reason: str) -> None:
    assert reason in refused(*args).message


def test_mcp_test_shows_changes_until_they_are_accepted(home: Path) -> None:
    file = home / "description"
    done("add", "raw", "--env", f"DESCRIPTION_FILE={file}", "--", sys.executable, RAW)
    assert run("test", "raw").return_value == 0
    file.write_text("Other.", encoding="utf-8")
    changed = run("test", "raw")
    assert changed.return_value == 1
    assert "-Act." in changed.output and "+Other." in changed.output
    assert "raw__act has changed: homarus mcp test raw" in done("list")
    assert json.loads(run("test", "raw", "--json").output)["pending"].keys() == {"raw__act"}
    done("test", "raw", "--accept")
    assert "has changed" not in done("list")


def test_doctor_names_servers_whose_program_is_missing(home: Path) -> None:
    servers = {"gone": {"command": "no-such-program"}, "raw": script("raw")}
    file = home / ".openclaw" / "openclaw.json"
    file.write_text(json.dumps({"mcp": {"servers": servers}}), encoding="utf-8")
    rows = json.loads(CliRunner().invoke(doctor, ["--json"]).output)["findings"]
    found = {row["about"]: row for row in rows if row["about"].startswith("MCP server")}
    assert found["MCP server gone"]["state"] == "bad"
    assert "there is no program no-such-program" in found["MCP server gone"]["text"]
    assert found["MCP server raw"]["state"] == "ok"
    assert "there is no program" in done("list")
