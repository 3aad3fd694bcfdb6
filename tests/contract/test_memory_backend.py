"""What every backend of memory promises (memory/base.py), over every one there is."""

import os
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from homarus.config.memory import MemoryConfig, MemorySearchConfig
from homarus.core.errors import HomarusError
from homarus.memory.backends import open_backend
from homarus.memory.base import MemoryBackend, SearchOptions, SearchResponse, StoppableBackend
from homarus.memory.builtin import BuiltinBackend
from homarus.memory.embed.base import ignore_cost
from homarus.memory.index import SyncReport
from homarus.memory.qmd.backend import QmdBackend
from homarus.memory.qmd.collections import find_document
from homarus.memory.results import SearchResult
from homarus.memory.spec import MemorySpec
from homarus.memory.view import view_for
from tests.peers.install import qmd_program
from tests.unit.memory.fake_qmd import fake_qmd

MAIN, GROUP = "agent:main:main", "agent:main:telegram:group:-7"
DIRECT, OTHER = "agent:main:telegram:direct:42", "agent:main:telegram:direct:43"
GUARD_S = 60.0
NOTES = {
    "MEMORY.md": "# Memory\n\n- Ada lives in Lisbon.\n- Tea, no milk.\n",
    "memory/2026-01-01.md": "- nothing\n" * 60
    + "- The boat Lobster has a new mast.\n"
    + "- so\n" * 60,
    "memory/shared/rules.md": "The boat is washed on Fridays.\n",
    "memory/a folder/Übung_1.md": "# Practice\r\nThe boat was out for an hour.\r\n日本語の海老\r\n",
    "memory/long.md": f"{'word ' * 400}the boat has a keel {'word ' * 400}\n",
    "SOUL.md": "The boat is a secret of its soul.\n",
}
HOSTILE = (
    "", " \n\t", "-", "--json --all -n 9999", '"boat', "boat AND OR NOT (", "NEAR(boat mast, 1)",
    "boat* ^mast {x} :", "lex: boat\nvec: mast", "qmd://memory-dir/../../SOUL.md", "boat\0mast",
    "'; DROP TABLE notes; --", "\ud800 boat", "boat " * 3_000, "🦞" * 500, "\u202eboat",
    "%s %(x)s {0}",
)  # fmt: skip

# The fake as a search engine: an update remembers the files, a question looks for words in them.
_UPDATE = """
roots = {"memory-root": "ws/MEMORY.md", "memory-dir": "ws/memory"}
held = {}
for name, where in roots.items():
    root = here.parent / where
    for file in [root] if root.is_file() else sorted(root.rglob("*.md")):
        relative = file.name if root.is_file() else file.relative_to(root).as_posix()
        held["qmd://%s/%s" % (name, relative)] = file.read_bytes().decode()
index = here / "index.json"
old = json.loads(index.read_text()) if index.exists() else {}
whole = here / ("index.%d" % os.getpid())
whole.write_text(json.dumps(held))
whole.replace(index)
for number, name in enumerate(roots, 1):
    now = {file: text for file, text in held.items() if file.startswith("qmd://%s/" % name)}
    new = sum(file not in old for file in now)
    same = sum(old.get(file) == text for file, text in now.items())
    gone = sum(file.startswith("qmd://%s/" % name) and file not in now for file in old)
    changed = len(now) - new - same
    print("[%d/%d] %s (x)" % (number, len(roots), name))
    print("Indexed: %d new, %d updated, %d unchanged, %d removed" % (new, changed, same, gone))
"""
_SEARCH = """
import re
index = here / "index.json"
held = json.loads(index.read_text()) if index.exists() else {}
words = set(re.findall(r"\\w+", rest[-1].lower())) - {"lex"}
rows = []
for file, text in held.items():
    lines = text.lower().split("\\n")
    worth = [len(words & set(re.findall(r"\\w+", line))) for line in lines]
    if max(worth) >= (len(words) if command == "search" else 1) > 0:
        at = worth.index(max(worth))
        shown = text.split("\\n")[at : at + 2]
        snippet = "@@ -%d,%d @@\\n%s" % (at + 1, len(shown), "\\n".join(shown))
        rows.append({"file": file, "score": max(worth) / 20, "snippet": snippet})
print(json.dumps(sorted(rows, key=lambda row: -row["score"])))
"""
_STATUS = """
index = here / "index.json"
held = json.loads(index.read_text()) if index.exists() else {}
print("  Total:    %d files indexed\\n  Vectors:  0 embedded" % len(held))
"""


@dataclass(frozen=True)
class Kept:
    """A place, and whoever keeps its index."""

    kind: str
    spec: MemorySpec

    def open(self) -> MemoryBackend:
        if self.kind == "both":
            return open_backend(self.spec, ignore_cost)
        return QmdBackend(self.spec) if self.kind.startswith("qmd") else BuiltinBackend(self.spec)

    def write(self, name: str, text: str) -> None:
        file = self.spec.workspace / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode())

    def fill(self) -> None:
        for name, text in NOTES.items():
            self.write(name, text)

    def sync(self, memory: MemoryBackend) -> SyncReport:
        """qmd is not asked again within seconds, unless it is forced."""
        return memory.sync(force=self.spec.settings.backend == "qmd")

    def file(self, path: str) -> Path:
        is_qmds = path.startswith("qmd/")
        return find_document(self.spec, path).file if is_qmds else self.spec.workspace / path

    def check(self, results: tuple[SearchResult, ...]) -> None:
        """Every citation holds: those lines of that file say it, in these words."""
        for one in results:
            text = self.file(one.path).read_bytes().decode()
            lines = [line.removesuffix("\r") for line in text.split("\n")]
            assert 1 <= one.start_line <= one.end_line <= len(lines), one
            assert one.snippet.strip() and 0 <= one.score <= 1, one
            cited = "\n".join(lines[one.start_line - 1 : one.end_line])
            pieces = [piece for piece in one.snippet.split("\n") if piece.strip(" …")]
            assert all(piece.strip(" …") in cited for piece in pieces), one

    def found(
        self, memory: MemoryBackend, text: str, ask: SearchOptions | None = None
    ) -> dict[str, str]:
        """What is found, by the names of files in the workspace."""
        results = memory.search(text, ask or SearchOptions()).results
        self.check(results)
        found: dict[str, str] = {}
        for one in results:
            name = self.file(one.path).relative_to(self.spec.workspace).as_posix()
            found[name] = f"{found.get(name, '')}{one.snippet}\n"
        return found


def builtin_place(base: Path, provider: str) -> MemorySpec:
    return MemorySpec(
        agent="main",
        workspace=base / "ws",
        database=base / "memory" / "main.sqlite",
        agent_folder=base / "agents" / "main",
        models_cache=base / "models",
        home=base,
        search=MemorySearchConfig.model_validate({"provider": provider}),
        settings=MemoryConfig(),
        timezone="UTC",
    )


def scripted(base: Path) -> MemorySpec:
    fake = fake_qmd(base)
    for command, code in (("update", _UPDATE), ("search", _SEARCH), ("query", _SEARCH)):
        fake.does(command, code)
    fake.does("status", _STATUS)
    return fake.spec


def real(base: Path) -> MemorySpec:
    program = qmd_program()
    env = {"PATH": f"{program.node}{os.pathsep}{os.environ['PATH']}", "LANG": "C.UTF-8"}
    settings = {"command": str(program.command), "limits": {"timeoutMs": 60_000}}
    written = MemoryConfig.model_validate({"backend": "qmd", "qmd": settings})
    return replace(builtin_place(base, "none"), settings=written, env=env)


MAKERS: dict[str, Callable[[Path], MemorySpec]] = {
    "words": lambda base: builtin_place(base, "none"),
    "wordllama": lambda base: builtin_place(base, "wordllama"),
    "qmd": scripted,
    "both": scripted,
    "qmd-real": real,
}
_REAL = pytest.param("qmd-real", marks=[pytest.mark.peers, pytest.mark.timeout(1200)])


@pytest.fixture(params=["words", "wordllama", "qmd", "both", _REAL])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Kept:
    kind: str = request.param
    if kind == "wordllama":
        pytest.importorskip("wordllama")
    return Kept(kind, MAKERS[kind](tmp_path))


def test_backend_synced_note_is_found_and_cited(kept: Kept) -> None:
    kept.fill()
    with closing(kept.open()) as memory:
        report = kept.sync(memory)
        # What qmd indexed when it was given a folder is unchanged for the update after that.
        assert len(report.indexed) + report.unchanged == 5 and not report.removed
        found = kept.found(memory, "boat mast")
        assert "- The boat Lobster has a new mast." in found["memory/2026-01-01.md"]
        assert next(iter(found)) == "memory/2026-01-01.md"
        assert "keel" in kept.found(memory, "keel")["memory/long.md"]
        assert "memory/a folder/Übung_1.md" in kept.found(memory, "Practice hour")
        assert "SOUL.md" not in kept.found(memory, "boat secret soul")
        answer = memory.search("Lisbon", SearchOptions())
    assert answer.backend == ("qmd" if kept.spec.settings.backend == "qmd" else "builtin")
    assert answer.provider == {"words": "none", "wordllama": "wordllama"}.get(kept.kind, "qmd")
    assert answer.fallback is None


def test_backend_sync_follows_new_changed_and_removed_files(kept: Kept) -> None:
    kept.fill()
    with closing(kept.open()) as memory:
        kept.sync(memory)
        kept.write("memory/new.md", "- A zebra came by.\n")
        report = kept.sync(memory)
        assert len(report.indexed) == 1 and report.unchanged == 5
        assert list(kept.found(memory, "zebra")) == ["memory/new.md"]
        kept.write("MEMORY.md", "- A line before it.\n- Ada lives in Porto.\n")
        assert len(kept.sync(memory).indexed) == 1
        assert "- Ada lives in Porto." in kept.found(memory, "Porto")["MEMORY.md"]
        assert "Lisbon" not in str(kept.found(memory, "Lisbon"))
        (kept.spec.workspace / "memory/new.md").unlink()
        report = kept.sync(memory)
        assert (len(report.removed), len(report.indexed)) == (1, 0)
        assert "memory/new.md" not in kept.found(memory, "zebra")
    with closing(kept.open()) as memory:  # another process finds what this one left
        assert kept.sync(memory).indexed == ()
        assert "MEMORY.md" in kept.found(memory, "Porto")


def test_backend_view_limits_results(kept: Kept) -> None:
    kept.fill()
    folders = {key: view_for(key) for key in (MAIN, GROUP, DIRECT, OTHER)}
    with closing(kept.open()) as memory:
        kept.sync(memory)
        seen = {
            key: set(kept.found(memory, "boat", SearchOptions(view=view)))
            for key, view in folders.items()
        }
    private = {"memory/2026-01-01.md", "memory/a folder/Übung_1.md", "memory/long.md"}
    assert seen[GROUP] == {"memory/shared/rules.md"}
    for key in (MAIN, DIRECT, OTHER):
        assert seen[key] == {"memory/shared/rules.md", *private}


def test_backend_without_notes_is_empty_without_error(kept: Kept) -> None:
    with closing(kept.open()) as memory:
        for _ in range(2):
            assert kept.sync(memory).indexed == ()
            assert memory.search("boat", SearchOptions()).results == ()
        status = memory.status()
    assert (status.files, status.vectors, status.problem) == (0, 0, "")


def test_backend_search_before_sync_finds_or_explains(kept: Kept) -> None:
    kept.fill()
    with closing(kept.open()) as memory:
        answer = memory.search("mast", SearchOptions())
        kept.check(answer.results)
        kept.sync(memory)
        assert memory.search("mast", SearchOptions()).results


def test_backend_any_query_text_is_safe(kept: Kept) -> None:
    kept.fill()
    with closing(kept.open()) as memory:
        kept.sync(memory)
        for text in HOSTILE:
            assert "SOUL.md" not in kept.found(memory, text), text
        assert "memory/2026-01-01.md" in kept.found(memory, "mast")


def test_backend_results_respect_limits(kept: Kept) -> None:
    kept.fill()
    with closing(kept.open()) as memory:
        kept.sync(memory)
        assert len(memory.search("boat", SearchOptions(max_results=2)).results) == 2
        assert memory.search("boat", SearchOptions(max_results=1)).results
        for one in memory.search("boat keel", SearchOptions(max_snippet_chars=90)).results:
            assert len(one.snippet) <= 90
        answer = memory.search("boat", SearchOptions(max_injected_chars=100))
        kept.check(answer.results)
        assert 0 < sum(len(one.snippet) for one in answer.results) <= 100


def test_backend_status_counts_files(kept: Kept) -> None:
    kept.fill()
    with closing(kept.open()) as memory:
        kept.sync(memory)
        status = memory.status()
        assert (status.agent, status.files, status.dirty, status.tested) == ("main", 5, False, True)
        assert (status.problem, status.fallback) == ("", None)
        assert bool(status.vectors) == (kept.kind == "wordllama")
        assert (
            status.workspace == str(kept.spec.workspace) and Path(status.database).parent.is_dir()
        )
        (kept.spec.workspace / "memory/long.md").unlink()
        kept.sync(memory)
        assert memory.status().files == 4


def test_backend_search_during_sync_in_two_threads_works(kept: Kept) -> None:
    kept.fill()
    ended = threading.Event()
    answers: list[SearchResponse] = []
    with closing(kept.open()) as memory:
        kept.sync(memory)

        def ask() -> None:
            while not ended.is_set() or not answers:
                answers.append(memory.search("mast", SearchOptions()))

        asking = threading.Thread(target=ask)
        asking.start()
        for number in range(3):
            kept.write(f"memory/n{number}.md", f"- Walrus {number} came by.\n")
            kept.sync(memory)
        ended.set()
        asking.join(GUARD_S)
        assert not asking.is_alive()
        assert "memory/n2.md" in kept.found(memory, "walrus")
    assert all(answer.results for answer in answers)


def test_backend_closed_refuses_calls_and_closes_again(kept: Kept) -> None:
    kept.fill()
    memory = kept.open()
    kept.sync(memory)
    before = threading.active_count()
    if isinstance(memory, StoppableBackend):
        memory.stop()
    memory.close()
    memory.close()
    with pytest.raises(HomarusError):
        memory.sync(force=True)
    with pytest.raises(HomarusError):
        memory.search("boat", SearchOptions())
    assert threading.active_count() <= before
    never_used = kept.open()
    never_used.close()
    never_used.close()
