"""The real qmd: its input, its output, and our parsing of it. Keywords, no models."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from homarus.config.memory import MemoryConfig, MemorySearchConfig
from homarus.memory.agent_memory import AgentMemory
from homarus.memory.backends import open_backend
from homarus.memory.base import SearchOptions
from homarus.memory.embed.base import ignore_cost
from homarus.memory.qmd.backend import QmdBackend
from homarus.memory.qmd.collections import find_document
from homarus.memory.qmd.process import QmdProcess
from homarus.memory.spec import MemorySpec
from homarus.memory.view import MemoryView, view_for
from tests.peers.install import QmdProgram, qmd_program

pytestmark = [pytest.mark.peers, pytest.mark.timeout(1200)]  # the first run installs it

KEY = "agent:main:main"
GROUP = "agent:main:telegram:group:-7"


@pytest.fixture(scope="session")
def program() -> QmdProgram:
    return qmd_program()


def make_spec(program: QmdProgram, base: Path, **settings: Any) -> MemorySpec:
    limits = {"timeoutMs": 60_000}  # the machine may be busy
    written = {"command": str(program.command), "limits": limits, **settings}
    return MemorySpec(
        agent="main",
        workspace=base / "ws",
        database=base / "memory/main.sqlite",
        agent_folder=base / "agents/main",
        models_cache=base / "models",
        home=base,
        search=MemorySearchConfig.model_validate({"store": {"vector": {"enabled": False}}}),
        settings=MemoryConfig.model_validate({"backend": "qmd", "qmd": written}),
        env={"PATH": f"{program.node}{os.pathsep}{os.environ['PATH']}", "LANG": "C.UTF-8"},
    )


def write(spec: MemorySpec, name: str, text: str) -> None:
    path = spec.workspace / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def lived_in(program: QmdProgram, base: Path) -> MemorySpec:
    spec = make_spec(program, base)
    write(spec, "MEMORY.md", "# Memory\n\n- Ada lives in Lisbon since 2024.\n- Tea, no milk.\n")
    filler = "".join(f"- nothing happened at {hour}\n" for hour in range(60))
    write(spec, "memory/2026-01-01.md", f"{filler}- The boat Lobster has a new mast.\n{filler}")
    write(spec, "memory/a folder/Übung_1.md", "# Practice\nThe boat was out for an hour.\n")
    write(spec, "memory/shared/rules.md", "The boat is washed on Fridays.\n")
    write(spec, "SOUL.md", "The boat is a secret.\n")
    return spec


@pytest.fixture
def spec(program: QmdProgram, tmp_path: Path) -> MemorySpec:
    return lived_in(program, tmp_path)


@pytest.fixture
def qmd(spec: MemorySpec) -> Iterator[QmdBackend]:
    with closing(QmdBackend(spec)) as qmd:
        qmd.sync(force=True)
        yield qmd


@pytest.fixture(scope="module")
def indexed(
    program: QmdProgram, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[MemorySpec, QmdBackend]]:
    """Return one index for all tests that only search."""
    spec = lived_in(program, tmp_path_factory.mktemp("indexed"))
    with closing(QmdBackend(spec)) as qmd:
        qmd.sync(force=True)
        yield spec, qmd


def cited(
    spec: MemorySpec, qmd: QmdBackend, question: str, view: MemoryView | None = None
) -> dict[str, str]:
    """Return paths and snippets; each snippet is the text of the cited lines."""
    results = qmd.search(question, SearchOptions(view=view or MemoryView())).results
    for one in results:
        lines = find_document(spec, one.path).file.read_text(encoding="utf-8").split("\n")
        assert "\n".join(lines[one.start_line - 1 : one.end_line]) == one.snippet
    return {one.path: one.snippet for one in results}


def test_qmd_workspace_is_indexed_searched_and_cited(
    indexed: tuple[MemorySpec, QmdBackend],
) -> None:
    spec, qmd = indexed
    found = cited(spec, qmd, "boat mast")
    assert list(found) == ["qmd/memory-dir/2026-01-01.md"]
    assert "- The boat Lobster has a new mast." in found["qmd/memory-dir/2026-01-01.md"]
    (result,) = qmd.search("mast", SearchOptions()).results
    assert result.start_line <= 61 <= result.end_line and result.source == "memory"
    assert set(cited(spec, qmd, "boat")) == {
        "qmd/memory-dir/2026-01-01.md",
        "qmd/memory-dir/a folder/Übung_1.md",
        "qmd/memory-dir/shared/rules.md",
    }
    assert cited(spec, qmd, "xylophone") == {}
    status = qmd.status()
    assert (status.backend, status.files, status.vectors) == ("qmd", 4, 0)
    assert Path(status.database).is_file() and not status.dirty


def test_qmd_query_without_full_match_is_answered(indexed: tuple[MemorySpec, QmdBackend]) -> None:
    spec, qmd = indexed
    found = cited(spec, qmd, "Where on earth does Ada live, with or without a xylophone?")
    assert "- Ada lives in Lisbon since 2024." in found["qmd/memory-root/MEMORY.md"]


def test_qmd_query_like_option_or_query_language_is_plain_text(
    indexed: tuple[MemorySpec, QmdBackend],
) -> None:
    spec, qmd = indexed
    for text in ("-mast", "mast --full --all", '"mast'):
        assert "qmd/memory-dir/2026-01-01.md" in cited(spec, qmd, text), text
    for text in ("lex: vec:", "NEAR( * OR", '"', "a" * 5_000):
        cited(spec, qmd, text)


def test_qmd_changed_note_is_found_after_update(spec: MemorySpec, qmd: QmdBackend) -> None:
    write(spec, "MEMORY.md", "- A new line.\n- Another.\n- Ada lives in Porto since 2026.\n")
    assert "Porto" in cited(spec, qmd, "Ada")["qmd/memory-root/MEMORY.md"]
    report = qmd.sync(force=True)
    assert report.indexed == ("qmd/memory-root",) and report.unchanged == 3
    assert "Porto" in cited(spec, qmd, "Porto")["qmd/memory-root/MEMORY.md"]
    assert cited(spec, qmd, "Lisbon") == {}
    (spec.workspace / "MEMORY.md").unlink()
    assert cited(spec, qmd, "Porto") == {}
    assert qmd.sync(force=True).removed == ("qmd/memory-root",)


def test_qmd_links_are_not_followed(spec: MemorySpec, qmd: QmdBackend, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x.md").write_text("A zeppelin boat.\n", encoding="utf-8")
    memory = spec.workspace / "memory"
    (memory / "x.md").symlink_to(outside / "x.md")
    (memory / "folder").symlink_to(outside)
    (memory / "soul.md").symlink_to(spec.workspace / "SOUL.md")
    (memory / "self.md").symlink_to(memory / "2026-01-01.md")
    qmd.sync(force=True)
    assert cited(spec, qmd, "zeppelin") == {}
    assert len(cited(spec, qmd, "boat")) == 3


def test_qmd_view_limits_results(indexed: tuple[MemorySpec, QmdBackend]) -> None:
    spec, qmd = indexed
    assert list(cited(spec, qmd, "boat", view_for(GROUP))) == ["qmd/memory-dir/shared/rules.md"]
    assert cited(spec, qmd, "Ada", view_for(GROUP)) == {}
    assert len(cited(spec, qmd, "boat", view_for(KEY))) == 3


def test_qmd_configured_collections_follow_config(
    program: QmdProgram, spec: MemorySpec, tmp_path: Path
) -> None:
    write(spec, "Docs & Co/one.md", "The anchor is rusty.\n")
    write(spec, "Docs & Co/deep/two.md", "The second anchor is new.\n")

    def anchors(*paths: dict[str, str]) -> set[str]:
        now = make_spec(program, tmp_path, paths=list(paths))
        with closing(QmdBackend(now)) as qmd:
            qmd.sync(force=True)
            return set(cited(now, qmd, "anchor"))

    folder = {"path": "Docs & Co"}
    assert anchors(folder) == {"qmd/docs-co/one.md", "qmd/docs-co/deep/two.md"}
    assert anchors({**folder, "pattern": "*.md"}) == {"qmd/docs-co/one.md"}
    assert anchors({"path": "Docs & Co/deep", "name": "docs co"}) == {"qmd/docs-co/two.md"}
    assert anchors() == set()
    listed = QmdProcess(spec).run("collection", "list", timeout_ms=0)
    assert re.findall(r"^(\S+) \(qmd:", listed, re.MULTILINE) == [
        "memory-root",
        "memory-alt",
        "memory-dir",
    ]


def test_qmd_project_file_in_workspace_is_ignored(spec: MemorySpec, tmp_path: Path) -> None:
    hook = f"    update: touch {tmp_path}/obeyed\n"
    local = f"collections:\n  memory-dir:\n    path: {tmp_path}\n    pattern: '**/*.md'\n{hook}"
    for base in (spec.workspace, tmp_path, spec.agent_folder):
        (base / ".qmd").mkdir(parents=True)
        (base / ".qmd/index.yml").write_text(local, encoding="utf-8")
    with closing(QmdBackend(spec)) as qmd:
        qmd.sync(force=True)
        assert len(cited(spec, qmd, "boat")) == 3
    assert not (tmp_path / "obeyed").exists()
    assert not list(tmp_path.rglob(".qmd/index.sqlite"))


def test_qmd_transcripts_are_found_by_participants(
    program: QmdProgram, spec: MemorySpec, tmp_path: Path
) -> None:
    spec.transcripts.mkdir(parents=True)
    index = {}
    for key, name, words in ((KEY, "s-1", "a red kayak"), (GROUP, "s-2", "a blue kayak")):
        index[key] = {"sessionId": name, "updatedAt": 1}
        message = {"role": "user", "content": [{"type": "text", "text": f"I bought {words}."}]}
        line = {"type": "message", "id": name, "parentId": None, "message": message}
        (spec.transcripts / f"{name}.jsonl").write_text(json.dumps(line) + "\n", encoding="utf-8")
    (spec.transcripts / "sessions.json").write_text(json.dumps(index), encoding="utf-8")
    now = make_spec(program, tmp_path, sessions={"enabled": True})
    with closing(QmdBackend(now)) as qmd:
        qmd.sync(force=True)
        assert set(cited(now, qmd, "kayak")) == {"qmd/sessions/s-1.md", "qmd/sessions/s-2.md"}
        assert list(cited(now, qmd, "kayak", view_for(GROUP))) == ["qmd/sessions/s-2.md"]
        found = qmd.search("red kayak", SearchOptions()).results[0]
    assert found.source == "sessions" and "User: I bought a red kayak." in found.snippet


def test_qmd_damaged_index_is_rebuilt(spec: MemorySpec, qmd: QmdBackend) -> None:
    index = Path(qmd.status().database)
    index.write_bytes(b"this is not a database, and long enough to be sure of it" * 100)
    assert "qmd/memory-dir/2026-01-01.md" in cited(spec, qmd, "mast")


@pytest.mark.parametrize("mode", ["query", "vsearch"])
def test_qmd_mode_without_model_falls_back(
    program: QmdProgram, spec: MemorySpec, tmp_path: Path, mode: str
) -> None:
    now = make_spec(program, tmp_path, searchMode=mode)
    with closing(open_backend(now, ignore_cost)) as memory:
        memory.sync()
        answer = memory.search("mast", SearchOptions())
        status = memory.status()
    assert "mast" in answer.results[0].snippet and answer.backend == status.backend == "builtin"
    assert answer.fallback and answer.fallback.wanted == "qmd"
    assert "qmd embed" in answer.fallback.why or "qmd query" in answer.fallback.why


async def test_qmd_agent_memory_searches_and_reads(spec: MemorySpec) -> None:
    memory = AgentMemory(spec)
    try:
        answer = await memory.search("mast")
        path = answer.results[0].path
        assert (answer.backend, path) == ("qmd", "qmd/memory-dir/2026-01-01.md")
        excerpt = await memory.get(path, from_line=61, lines=1)
        assert excerpt.text == "- The boat Lobster has a new mast."
        assert (await memory.status()).backend == "qmd"
    finally:
        await memory.close()


def test_qmd_needing_newer_node_falls_back(program: QmdProgram, spec: MemorySpec) -> None:
    old = spec.home / "old"
    old.mkdir()
    (old / "node").write_text("#!/bin/sh\necho 'SyntaxError: too old' >&2\nexit 1\n")
    (old / "node").chmod(0o755)
    now = replace(spec, env={"PATH": f"{old}{os.pathsep}{os.environ['PATH']}"})
    with closing(open_backend(now, ignore_cost)) as memory:
        answer = memory.search("mast", SearchOptions())
    assert answer.results and answer.fallback and "too old" in answer.fallback.why
