import json
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from homarus.core.errors import StoreError
from homarus.memory.base import SearchOptions
from homarus.memory.qmd.backend import QmdBackend
from homarus.memory.transcript_export import exports_folder
from homarus.memory.view import MemoryView
from tests.unit.memory.fake_qmd import FakeQmd, fake_qmd

GUARD_S = 60


class Hand:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def note(fake: FakeQmd, name: str, text: str) -> None:
    path = fake.spec.workspace / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def row(file: str, snippet: str = "", score: float = 0.5) -> dict[str, Any]:
    return {"file": f"qmd://{file}", "score": score, "snippet": snippet, "docid": "#1"}


@contextmanager
def opened(fake: FakeQmd, clock: Hand | None = None) -> Iterator[QmdBackend]:
    with closing(QmdBackend(fake.spec, clock or Hand())) as qmd:
        yield qmd


def updated(qmd: QmdBackend, fake: FakeQmd, times: int) -> int:
    """How often an update ran, once what was begun is done."""
    for _ in range(GUARD_S * 100):
        if not qmd.status().dirty and len(fake.calls("update")) >= times:
            break
        time.sleep(0.01)
    return len(fake.calls("update"))


def test_search_results_name_collection_and_cite_file(tmp_path: Path) -> None:
    fake = fake_qmd(tmp_path)
    note(fake, "memory/a b.md", "# Day\n- The boat is red.\n- Tea.\n")
    note(fake, "MEMORY.md", "- Ada has a boat.\n")
    fake.finds(
        row("memory-dir/a b.md", "@@ -2,1 @@ (1 before, 1 after)\n- The boat is red.", 0.9),
        row("memory-root/MEMORY.md", "@@ -1,1 @@ (0 before, 0 after)\n- Ada has a boat.", 0.4),
    )
    with opened(fake) as qmd:
        answer = qmd.search("boat", SearchOptions())
    assert [(one.citation, one.snippet, one.score, one.source) for one in answer.results] == [
        ("qmd/memory-dir/a b.md#L2", "- The boat is red.", 0.9, "memory"),
        ("qmd/memory-root/MEMORY.md#L1", "- Ada has a boat.", 0.4, "memory"),
    ]
    assert (answer.backend, answer.provider, answer.model) == ("qmd", "qmd", "search")
    assert answer.fallback is None


def test_search_query_is_never_an_option_or_negation(tmp_path: Path) -> None:
    fake = fake_qmd(tmp_path)
    with opened(fake) as qmd:
        for text in ("--full boat", "-boat -- --x\n y\0z", "\ud800 boat", "x" * 100_000):
            qmd.search(text, SearchOptions())
        assert qmd.search(" \n- -- ", SearchOptions()).results == ()
    asked = [call["argv"] for call in fake.calls("search")]
    assert [one[one.index("--") + 1 :] for one in asked] == [
        ["full boat"],
        ["boat x y z"],
        ["? boat"],
        ["x" * 2_000],
    ]
    assert asked[0][3:6] == ["--json", "-n", "12"]
    assert [asked[0][at + 1] for at, word in enumerate(asked[0]) if word == "-c"] == [
        "memory-root",
        "memory-alt",
        "memory-dir",
    ]


def test_search_no_file_with_all_words_matches_any_word(tmp_path: Path) -> None:
    fake = fake_qmd(tmp_path)
    note(fake, "MEMORY.md", "- Ada lives in Lisbon.\n")
    fake.finds(row("memory-root/MEMORY.md"), command="query")
    with opened(fake) as qmd:
        (found,) = qmd.search("Where does Ada live?", SearchOptions()).results
    assert found.citation == "qmd/memory-root/MEMORY.md#L1"
    (call,) = fake.calls("query")
    assert "--no-rerank" in call["argv"]
    assert call["argv"][-1] == "lex: Ada live\nlex: Ada\nlex: live"


def test_search_old_qmd_without_keyword_mode_finds_nothing(
    tmp_path: Path,
) -> None:
    fake = fake_qmd(tmp_path)
    fake.does("query", "sys.exit('unknown option')")
    with opened(fake) as qmd:
        assert qmd.search("Ada boat", SearchOptions()).results == ()
    assert len(fake.calls("query")) == 1
    fake.forget()
    fake.does("version", "print('qmd 1.1.6')")
    with opened(fake) as qmd:
        assert qmd.search("Ada boat", SearchOptions()).results == ()
    assert fake.calls("query") == []


def test_search_view_filters_results(tmp_path: Path) -> None:
    fake = fake_qmd(tmp_path, sessions={"enabled": True})
    for name in ("MEMORY.md", "memory/a.md", "memory/shared/b.md", "memory/chats/kin-1/c.md"):
        note(fake, name, "- the boat\n")
    export = fake.spec.agent_folder / "qmd/sessions/d.md"
    export.parent.mkdir(parents=True)
    export.write_text("User: the boat\n", encoding="utf-8")
    fake.finds(
        row("memory-root/MEMORY.md"),
        row("memory-dir/a.md"),
        row("memory-dir/shared/b.md"),
        row("memory-dir/chats/kin-1/c.md"),
        row("sessions/d.md"),
    )

    def seen(*audiences: str) -> list[str]:
        view = MemoryView(audiences=frozenset(audiences) or None)
        found = qmd.search("boat", SearchOptions(view=view)).results
        return [one.path.removeprefix("qmd/") for one in found]

    with opened(fake) as qmd:
        shared = ["memory-dir/shared/b.md"]
        assert seen("shared") == shared
        assert seen("shared", "chat:kin-1") == [*shared, "memory-dir/chats/kin-1/c.md"]
        assert seen("shared", "private") == ["memory-root/MEMORY.md", "memory-dir/a.md", *shared]
        assert len(seen()) == 5
        assert qmd.search("boat", SearchOptions()).results[-1].source == "sessions"
        assert (
            qmd.search("boat", SearchOptions(view=MemoryView(owners=frozenset({"x"})))).results
            == ()
        )


def test_search_foreign_linked_and_missing_files_are_dropped(
    tmp_path: Path,
) -> None:
    fake = fake_qmd(tmp_path)
    (tmp_path / "secret.md").write_text("the boat\n", encoding="utf-8")
    (fake.spec.workspace / "memory/link.md").symlink_to(tmp_path / "secret.md")
    note(fake, "SOUL.md", "the boat\n")
    snippet = "@@ -1,1 @@ (0, 0)\nthe boat"
    fake.finds(
        row("theirs/x.md", snippet),
        row("memory-dir/link.md", snippet),
        row("memory-dir/../SOUL.md", snippet),
        row("memory-root/SOUL.md", snippet),
        row("memory-dir/gone.md", snippet),
        row("/etc/passwd", snippet),
        row("", snippet),
    )
    with opened(fake) as qmd:
        answer = qmd.search("boat", SearchOptions())
    assert answer.results == ()
    assert answer.notes == ("4 results of qmd name files that are not there",)


def test_search_file_in_two_collections_is_one_result(tmp_path: Path) -> None:
    fake = fake_qmd(tmp_path, paths=[{"path": "memory", "name": "again"}])
    note(fake, "memory/a.md", "the boat\n")
    fake.finds(row("memory-dir/a.md"), row("again/a.md"))
    with opened(fake) as qmd:
        assert len(qmd.search("boat", SearchOptions()).results) == 1


def test_search_results_respect_count_and_size_limits(tmp_path: Path) -> None:
    fake = fake_qmd(tmp_path, limits={"maxSnippetChars": 300, "maxInjectedChars": 1_000})
    for number in range(8):
        note(fake, f"memory/{number}.md", f"boat {'x' * 400}\n")
    fake.finds(*(row(f"memory-dir/{n}.md", score=1 - n / 10) for n in range(8)))
    with opened(fake) as qmd:
        lengths = [len(one.snippet) for one in qmd.search("boat", SearchOptions()).results]
        assert lengths == [300, 300, 300, 100]
        assert len(qmd.search("boat", SearchOptions(max_results=2)).results) == 2
        assert len(qmd.search("boat", SearchOptions(min_score=0.85)).results) == 2
        ask = SearchOptions(max_snippet_chars=50, max_injected_chars=120)
        assert [len(one.snippet) for one in qmd.search("boat", ask).results] == [50, 50]


def test_search_invalid_output_or_hang_raises(tmp_path: Path) -> None:
    fake = fake_qmd(tmp_path, limits={"timeoutMs": 2_000})
    with opened(fake) as qmd:
        fake.does("search", "import time\ntime.sleep(600)")
        with pytest.raises(StoreError, match="took longer than 2 s"):
            qmd.search("boat", SearchOptions())
    fake = fake_qmd(tmp_path / "other")
    with opened(fake) as qmd:
        fake.does("search", "print('Segmentation fault')")
        with pytest.raises(StoreError, match="its first line: Segmentation fault"):
            qmd.search("boat", SearchOptions())


def test_sync_updates_first_and_then_after_interval(tmp_path: Path) -> None:
    fake, clock = fake_qmd(tmp_path, update={"waitForBootSync": True}), Hand()
    with opened(fake, clock) as qmd:
        report = qmd.sync()
        assert (len(report.indexed), report.unchanged, len(report.removed)) == (3, 4, 1)
        assert updated(qmd, fake, 1) == 1
        clock.now_s += 14
        qmd.sync()
        assert updated(qmd, fake, 1) == 1
        clock.now_s += 1
        qmd.sync()
        assert updated(qmd, fake, 2) == 2
        qmd.sync(force=True)
        assert len(fake.calls("update")) == 3


def test_sync_without_boot_update_waits_for_interval(tmp_path: Path) -> None:
    fake, clock = fake_qmd(tmp_path, update={"onBoot": False, "interval": "5m"}), Hand()
    with opened(fake, clock) as qmd:
        qmd.sync()
        assert fake.calls("update") == []
        clock.now_s += 300
        qmd.sync()
        assert updated(qmd, fake, 1) == 1


def test_search_during_long_update_is_answered_and_close_ends_it(tmp_path: Path) -> None:
    fake = fake_qmd(tmp_path, update={"updateTimeoutMs": 0})
    note(fake, "MEMORY.md", "the boat\n")
    fake.does("update", "import time\n(here / 'begun').touch()\ntime.sleep(600)")
    fake.finds(row("memory-root/MEMORY.md"))
    with opened(fake) as qmd:
        qmd.sync()
        assert len(qmd.search("boat", SearchOptions()).results) == 1
        qmd.sync()  # one at a time
        assert len(fake.calls("update")) == 1
    assert not [one for one in threading.enumerate() if one.name.startswith("qmd update")]


def test_sync_embeds_only_for_vector_modes_at_interval(tmp_path: Path) -> None:
    fake, clock = fake_qmd(tmp_path, searchMode="query"), Hand()
    with opened(fake, clock) as qmd:
        for passed_s, embedded in ((0, 1), (60, 1), (3_600, 2)):
            clock.now_s += passed_s
            qmd.sync()
            updated(qmd, fake, 1)
            assert len(fake.calls("embed")) == embedded
    plain = fake_qmd(tmp_path / "plain")
    with opened(plain) as qmd:
        qmd.sync(force=True)
    assert plain.calls("embed") == []


def test_sync_embedding_failure_is_logged_once_and_ends_search(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fake, clock = fake_qmd(tmp_path, searchMode="vsearch"), Hand()
    fake.does("embed", "sys.exit('ModelError: no weights')")
    with opened(fake, clock) as qmd, caplog.at_level(logging.WARNING):
        for _ in range(3):
            qmd.sync()
            updated(qmd, fake, 1)
            clock.now_s += 3_600
        assert caplog.text.count("no weights") == 1
        assert "no weights" in qmd.status().problem
        with pytest.raises(StoreError, match=r"qmd has no vectors: .*no weights"):
            qmd.search("boat", SearchOptions())
        with pytest.raises(StoreError, match="no weights"):
            qmd.sync(force=True)


def test_search_damaged_index_is_rebuilt(tmp_path: Path) -> None:
    fake = fake_qmd(tmp_path)
    note(fake, "MEMORY.md", "the boat\n")
    index = fake.spec.agent_folder / "qmd/xdg-cache/qmd/index.sqlite"
    code = f"""
index = pathlib.Path({str(index)!r})
if index.exists(): sys.exit("SqliteError: file is not a database")
print('[{{"file": "qmd://memory-root/MEMORY.md", "score": 1}}]')
"""
    fake.does("search", code)
    with opened(fake) as qmd:
        qmd.search("boat", SearchOptions())
        index.write_bytes(b"garbage")
        assert len(qmd.search("boat", SearchOptions()).results) == 1
    assert len(fake.calls("update")) == 1


def test_status_reports_qmd_counts(tmp_path: Path) -> None:
    fake = fake_qmd(tmp_path, sessions={"enabled": True})
    with opened(fake) as qmd:
        assert qmd.status().dirty
        qmd.sync(force=True)
        status = qmd.status()
    assert (status.backend, status.files, status.vectors, status.dirty) == ("qmd", 7, 0, False)
    assert status.database.endswith("agents/main/qmd/xdg-cache/qmd/index.sqlite")
    assert status.sources == ("memory", "sessions") and status.tested


def test_backend_sync_and_search_in_two_threads_work(tmp_path: Path) -> None:
    fake = fake_qmd(tmp_path, update={"debounceMs": 0})
    note(fake, "MEMORY.md", "the boat\n")
    fake.finds(row("memory-root/MEMORY.md"))
    found: list[int] = []
    with opened(fake) as qmd:

        def search() -> None:
            found.extend(len(qmd.search("boat", SearchOptions()).results) for _ in range(5))

        threads = [threading.Thread(target=search) for _ in range(2)]
        for thread in threads:
            thread.start()
        for _ in range(5):
            qmd.sync()
        for thread in threads:
            thread.join(GUARD_S)
    assert found == [1] * 10
    added = [call["argv"][4] for call in fake.calls("collection") if call["argv"][3] == "add"]
    assert added == ["--name=memory-root", "--name=memory-alt", "--name=memory-dir"]


def test_search_waits_briefly_for_first_indexing(tmp_path: Path) -> None:
    fake = fake_qmd(tmp_path)
    held = "while not (here / 'go').exists(): time.sleep(0.01)"
    fake.does("collection", f"import time\n(here / 'begun').touch()\n{held}")
    with opened(fake) as qmd:
        thread = threading.Thread(target=qmd.sync)
        thread.start()
        while thread.is_alive() and not (fake.folder / "begun").exists():
            time.sleep(0.01)
        with pytest.raises(StoreError, match="still indexing"):
            qmd.search("boat", SearchOptions(timeout_ms=50))
        (fake.folder / "go").touch()
        thread.join(GUARD_S)
        assert not thread.is_alive()


def test_stop_ends_wait_for_update(tmp_path: Path) -> None:
    fake = fake_qmd(tmp_path)
    fake.does("update", "import time\ntime.sleep(600)")

    def closed(_done: int, _all: int, _what: str) -> None:
        raise StoreError("the memory was closed")

    with opened(fake) as qmd, pytest.raises(StoreError, match="was closed"):
        qmd.sync(force=True, progress=closed)


def test_sync_unexportable_transcript_is_named(tmp_path: Path) -> None:
    fake = fake_qmd(tmp_path, sessions={"enabled": True})
    fake.spec.transcripts.mkdir(parents=True)
    line = {"type": "message", "id": "a", "message": {"role": "user", "content": "A red kayak."}}
    (fake.spec.transcripts / "s-1.jsonl").write_text(json.dumps(line), encoding="utf-8")
    (exports_folder(fake.spec) / "s-1.md").mkdir(parents=True)
    with opened(fake) as qmd:
        (skipped,) = qmd.sync(force=True).skipped
    assert skipped.path == "qmd/sessions/s-1.md" and skipped.why
