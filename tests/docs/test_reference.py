"""Check that the reference lists every command, key, tool, event, error and method."""

import inspect
import re
import shutil
import subprocess
import sys
import tomllib
import typing
from pathlib import Path

import click
import pytest
from pydantic import BaseModel

from docs import generate
from homarus.channels.registry import available_channels, load_channel
from homarus.cli.main import GROUPS, group
from homarus.config.schema import Config
from homarus.core import event
from homarus.gateway.methods import METHODS, UNIMPLEMENTED
from homarus.tools.catalog import builtin_tools

ROOT = Path(__file__).parents[2]


def read_pages(folder: Path) -> dict[str, str]:
    """Return the pages of a reference by their paths in it."""
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in folder.rglob("*.md")
    }


PAGES = read_pages(generate.REFERENCE)


def test_reference_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "docs/generate.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_outdated_reference_page_is_detected(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in PAGES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text.replace("exec", "run"), encoding="utf-8")
    # The pages made at import: commands that other tests have called may print differently now.
    monkeypatch.setattr(generate, "pages", lambda: PAGES)
    monkeypatch.setattr(generate, "REFERENCE", tmp_path)
    monkeypatch.setattr(sys, "argv", ["generate.py", "--check"])
    assert generate.main() == 1
    assert "tools.md" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["generate.py"])
    assert generate.main() == 0
    assert read_pages(tmp_path) == PAGES


def test_reference_contains_every_command_and_option() -> None:
    root = click.Context(group, info_name="homarus", **group.context_settings)
    for ctx in [root, *generate.below(root)]:
        heading = f"## {ctx.command_path}\n" if ctx.parent else "# Commands\n"
        assert heading in PAGES["commands.md"]
        section = PAGES["commands.md"].split(heading)[1].split("\n## ")[0]
        assert ctx.command.help, f"{ctx.command_path} has no help"
        for param in ctx.command.params:
            if isinstance(param, click.Option):
                assert param.help, f"{ctx.command_path} {param.name} has no help"
                assert param.hidden or all(flag in section for flag in param.opts)
            else:
                assert str(param.name).upper() in section


def test_man_page_describes_every_command_and_formats() -> None:
    page = (generate.REFERENCE / generate.MAN).read_text(encoding="ascii")
    for ctx in generate.below(generate.root_context()):
        usage = ctx.command_path.replace("-", "\\-")
        assert f"\n.SS {usage} " in page, ctx.command_path
    for title in GROUPS:
        assert f"\n.SH {title.upper()}\n" in page
    if groff := shutil.which("groff"):
        done = subprocess.run(
            [groff, "-man", "-Tutf8", "-ww", generate.REFERENCE / generate.MAN],
            capture_output=True,
            text=True,
            check=True,
        )
        text = re.sub(r".\x08", "", done.stdout)  # bold is overstruck
        assert not done.stderr and "homarus models auth add [OPTIONS] [PROVIDER]" in text


def test_wheel_installs_the_man_page() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]
    shared = build["build"]["targets"]["wheel"]["shared-data"]
    (source,) = [file for file, target in shared.items() if target.startswith("share/man/man1/")]
    assert (ROOT / source).is_file() and shared[source] == "share/man/man1/homarus.1"


def keys(model: type[BaseModel]) -> set[str]:
    """Return the names of every field of a model and of the models in it."""
    found, todo, seen = set[str](), [model], set[type[BaseModel]]()
    while todo:
        one = todo.pop()
        seen.add(one)
        for field in one.model_fields.values():
            found.add(str(field.alias))
            todo += [kind for kind in models_in(field.annotation) if kind not in seen]
    return found


def models_in(annotation: object) -> list[type[BaseModel]]:
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return [annotation]
    return [kind for part in typing.get_args(annotation) for kind in models_in(part)]


def test_reference_contains_every_config_key() -> None:
    names = keys(Config)
    assert {"agents", "primary", "contextWindow"} <= names
    for name in names:
        assert f".{name}`" in PAGES["config.md"] or f"`{name}`" in PAGES["config.md"], name


def test_reference_contains_every_channel_setting() -> None:
    page = PAGES["config.md"]
    for name in available_channels():
        for key in load_channel(name).Settings.model_fields.values():
            told = (f"`channels.{name}.{key.alias}`", f"`channels.<channel>.{key.alias}`")
            assert any(one in page for one in told), f"{name} {key.alias}"


def test_reference_contains_every_tool_with_arguments() -> None:
    tools = {tool.name: tool for tool in builtin_tools()}
    assert {"read", "write", "edit", "ls", "find", "grep", "exec"} <= set(tools)
    for tool in tools.values():
        assert tool.spec.description, f"{tool.name} has no manual"
        assert f"(tools/{tool.name}.md)" in PAGES["tools.md"]
        page = PAGES[f"tools/{tool.name}.md"]
        assert all(f"`{name}`" in page for name in tool.spec.parameters.get("properties", {}))


def test_reference_contains_every_event_and_error() -> None:
    for fact in typing.get_args(event.EventData):
        assert f"`{fact.__name__}`" in PAGES["events.md"]
    assert {type(fact) for fact in generate.FACTS} == set(typing.get_args(event.EventData))
    for kind in generate.all_errors():
        assert f"`{kind.code}`" in PAGES["errors.md"]
        assert kind.__doc__


def test_reference_contains_every_method_with_params() -> None:
    for method in METHODS.values():
        section = PAGES["protocol.md"].split(f"\n## {method.name}\n")[1].split("\n## ")[0]
        assert f"Scope: {method.scope}." in section
        assert all(f"`{field.alias}`" in section for field in method.params.model_fields.values())
    missing = PAGES["protocol.md"].split("\n## Not built yet\n")[1]
    assert all(f"`{name}`" in missing for name in UNIMPLEMENTED)
