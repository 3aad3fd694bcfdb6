"""The tutorials of docs/architecture.md: their code runs as the page shows it."""

import importlib
import importlib.resources
import inspect
import json
import re
import sys
import tomllib
from collections.abc import Awaitable, Callable, Iterator
from importlib.readers import MultiplexedPath
from pathlib import Path
from typing import Any

import pytest

from homarus.channels import registry as channel_registry
from homarus.plugins.backends import BackendKind
from homarus.process import open_app
from homarus.providers import registry as provider_registry
from homarus.tools import sources
from tests.docs.test_documents import broken_links
from tests.style.rules import ROOT
from tests.waiting import until

PAGE = ROOT / "docs" / "architecture.md"
_BLOCK = re.compile(r"^```(?:python|toml)\n# ([^\n]+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks() -> dict[str, str]:
    """Return the code blocks of the page, by the file named in their first line."""
    return dict(_BLOCK.findall(PAGE.read_text(encoding="utf-8")))


BLOCKS = blocks()
MODULES = {Path(name).stem: name for name in BLOCKS if name.startswith("src/homarus/")}
TESTS = {
    Path(name).stem.removeprefix("test_"): name for name in BLOCKS if name.startswith("tests/unit/")
}
PACKAGES = {name: BLOCKS[name] for name in BLOCKS if name.startswith("pyproject.toml ")}


@pytest.fixture(autouse=True)
def _clear_caches() -> Iterator[None]:
    before = set(sys.modules)
    _forget()
    yield
    for name in set(sys.modules) - before:
        if name.rpartition(".")[2] in {*MODULES, *(f"homarus_{each}" for each in MODULES)}:
            del sys.modules[name]
    _forget()


def _forget() -> None:
    """Clear what the registries have found so far."""
    sources.source_names.cache_clear()
    channel_registry.find_traits.cache_clear()
    provider_registry._modules.cache_clear()


def add_to_tree(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Add a module of the page to its package, as if its file were in the source tree."""
    path = Path(MODULES[name])
    package = importlib.import_module(".".join(path.parent.parts[1:]))
    (folder / path.name).write_text(BLOCKS[MODULES[name]], encoding="utf-8")
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
    # A file in the package's own folder is found by these too.
    files = MultiplexedPath(*map(Path, package.__path__))
    own = importlib.resources.files
    monkeypatch.setattr(
        importlib.resources, "files", lambda each: files if each == package.__name__ else own(each)
    )
    if package.__name__ == "homarus.providers":
        monkeypatch.setattr(provider_registry, "__file__", str(folder / "registry.py"))


def install(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a module of the page as a package of its own, with the entry point it shows."""
    title = next(title for title in PACKAGES if title.endswith(f" homarus_{name}.py"))
    groups = tomllib.loads(PACKAGES[title])["project"]["entry-points"]
    (folder / f"homarus_{name}.py").write_text(BLOCKS[MODULES[name]], encoding="utf-8")
    info = folder / f"homarus_{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: homarus-{name}\nVersion: 1.0\n")
    lines = [
        f"[{group}]\n{key} = {value}\n"
        for group, entries in groups.items()
        for key, value in entries.items()
    ]
    (info / "entry_points.txt").write_text("".join(lines))
    monkeypatch.syspath_prepend(str(folder))
    importlib.invalidate_caches()


async def run_test_block(name: str, folder: Path) -> int:
    """Run every test function of a tutorial's test; return how many there were."""
    path = TESTS[name]
    namespace: dict[str, Any] = {"__name__": Path(path).stem}
    exec(compile(BLOCKS[path], path, "exec"), namespace)
    found: list[Callable[..., Awaitable[None]]] = [
        value for key, value in namespace.items() if key.startswith("test_")
    ]
    for test in found:
        given = {"tmp_path": folder} if "tmp_path" in inspect.signature(test).parameters else {}
        await test(**given)
    return len(found)


def test_page_has_a_module_and_a_test_for_each_tutorial() -> None:
    assert set(MODULES) == set(TESTS) == {"dice", "folder", "echo"}
    assert len(PACKAGES) == 2


@pytest.mark.parametrize("name", ["dice", "folder", "echo"])
async def test_tutorial_module_in_the_tree_passes_its_test(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("source", "test"):
        (tmp_path / folder).mkdir()
    add_to_tree(name, tmp_path / "source", monkeypatch)
    assert await run_test_block(name, tmp_path / "test") == 1


@pytest.mark.parametrize("name", ["folder", "echo"])
async def test_tutorial_module_in_a_package_passes_its_test(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("source", "test"):
        (tmp_path / folder).mkdir()
    install(name, tmp_path / "source", monkeypatch)
    kinds: dict[str, BackendKind[Any]] = {
        "folder": channel_registry.CHANNELS,
        "echo": provider_registry.PROVIDERS,
    }
    assert name in kinds[name].names() and kinds[name].has(name)
    assert await run_test_block(name, tmp_path / "test") == 1


async def test_tutorial_channel_and_provider_answer_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("source", "source/channel", "source/provider", "chat", "chat/in", "chat/out"):
        (tmp_path / folder).mkdir()
    add_to_tree("folder", tmp_path / "source/channel", monkeypatch)
    add_to_tree("echo", tmp_path / "source/provider", monkeypatch)
    chat = {"path": str(tmp_path / "chat"), "pollMs": 10, "dmPolicy": "open", "allowFrom": ["*"]}
    entry = {"api": "echo", "models": [{"id": "echo-1"}]}
    config = {
        "agents": {"defaults": {"model": {"primary": "parrot/echo-1"}}},
        "models": {"providers": {"parrot": entry}},
        "channels": {"folder": chat},
        "logging": {"file": str(tmp_path / "log.jsonl")},
    }
    (tmp_path / "openclaw.json").write_text(json.dumps(config), encoding="utf-8")
    (tmp_path / "chat" / "in" / "anna.1.txt").write_text("Hello there", encoding="utf-8")
    env = {"HOME": str(tmp_path), "OPENCLAW_STATE_DIR": str(tmp_path)}
    async with open_app(env) as app:
        await app.recover()  # which starts the channels
        replies = tmp_path / "chat" / "out"
        await until(lambda: any(path.stat().st_size for path in replies.iterdir()))
    [reply] = replies.iterdir()
    assert reply.read_text(encoding="utf-8").endswith("Hello there")
    assert not list((tmp_path / "chat" / "in").iterdir())


def test_page_draws_every_package_in_the_order_of_the_contract() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    layers = next(one["layers"] for one in contracts if one["type"] == "layers")
    present = {path.stem for path in (ROOT / "src" / "homarus").iterdir()}
    expected = [name for line in layers for name in re.findall(r"\w+", line) if name in present]
    text = PAGE.read_text(encoding="utf-8")
    diagram = text.split("## Packages and layers")[1].split("```")[1]
    drawn = [re.split(r" {2,}", line)[0] for line in diagram.strip().splitlines()]
    assert re.findall(r"\w+", " ".join(drawn)) == expected


def test_page_links_lead_to_files_for_ten_hops() -> None:
    text = PAGE.read_text(encoding="utf-8")
    hops = re.findall(r"^\| (\d+) \|(.*)$", text, re.MULTILINE)
    assert [int(number) for number, _ in hops] == list(range(1, 11))
    assert all("](../src/homarus/" in row for _, row in hops)
    assert broken_links(PAGE, text) == []
