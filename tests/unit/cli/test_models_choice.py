"""`homarus models set-image|aliases|fallbacks|image-fallbacks`, without a gateway."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from homarus.cli.models import command
from homarus.core.errors import HomarusError, UnknownNameError, UserError

CONFIG = """{
  // what answers
  agents: { defaults: { model: "openai/gpt-5.2" } },
}
"""


@pytest.fixture
def file(home: Path) -> Path:
    file = home / ".openclaw" / "openclaw.json"
    file.write_text(CONFIG)
    return file


def run(*args: str) -> Result:
    return CliRunner().invoke(command, args, standalone_mode=False)


def told(*args: str) -> Any:
    done = run(*args, "--json")
    assert done.exception is None, done.exception
    return json.loads(done.stdout)


def test_image_model_is_set_and_comments_stay(file: Path) -> None:
    assert told("set-image", "openai/gpt-5-mini")["model"] == "openai/gpt-5-mini"
    text = file.read_text()
    assert "// what answers" in text and "imageModel" in text and '"openai/gpt-5.2"' in text
    assert isinstance(run("set-image", "nonsense/x").exception, HomarusError)
    assert file.read_text() == text


@pytest.mark.parametrize(
    ("name", "key"), [("fallbacks", "model"), ("image-fallbacks", "imageModel")]
)
def test_fallbacks_are_added_removed_and_cleared(file: Path, name: str, key: str) -> None:
    assert told(name, "list")["fallbacks"] == [] and run(name, "list").stdout == "None.\n"
    for model in ("openai/gpt-5-mini", "anthropic/claude-opus-4-6", "openai/gpt-5-mini"):
        added = told(name, "add", model)
    assert added["fallbacks"] == ["openai/gpt-5-mini", "anthropic/claude-opus-4-6"]
    assert told(name, "list")["fallbacks"] == added["fallbacks"]
    assert told(name, "remove", "openai/gpt-5-mini")["fallbacks"] == added["fallbacks"][1:]
    assert isinstance(run(name, "remove", "openai/gpt-5-mini").exception, UnknownNameError)
    assert told(name, "clear")["fallbacks"] == []
    assert "openai/gpt-5.2" in file.read_text()


def test_alias_is_added_moved_and_removed(file: Path) -> None:
    done = run("aliases", "add", "fast", "openai/gpt-5-mini")
    assert done.exception is None and "Only the models" in done.stderr
    assert told("aliases", "list")["aliases"] == {"fast": "openai/gpt-5-mini"}
    assert "openai/gpt-5.2" in file.read_text().split("models")[1], "what answers stays allowed"
    assert told("aliases", "add", "fast", "openai/gpt-5.2")["model"] == "openai/gpt-5.2"
    assert told("aliases", "list")["aliases"] == {"fast": "openai/gpt-5.2"}
    assert "fast" in run("aliases", "list").stdout
    assert told("aliases", "remove", "fast")["removed"]
    assert told("aliases", "list")["aliases"] == {}
    assert isinstance(run("aliases", "remove", "fast").exception, UnknownNameError)


@pytest.mark.parametrize("alias", ["", "a/b", "x" * 65, "a\x1bb"])
def test_alias_that_is_no_name_is_refused(file: Path, alias: str) -> None:
    assert isinstance(run("aliases", "add", alias, "openai/gpt-5-mini").exception, UserError)
    assert file.read_text() == CONFIG
