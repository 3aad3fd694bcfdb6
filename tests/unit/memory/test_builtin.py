"""The backend of our own: words always, vectors where they can be had, and no silence."""

import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from homarus.core.errors import ProviderError, StoreError
from homarus.memory import builtin
from homarus.memory.base import FallbackNotice, SearchOptions
from homarus.memory.builtin import BuiltinBackend, EmbedderChoice, describe_report
from homarus.memory.embed.base import EmbeddingModel, OnCost
from homarus.memory.embed.circuit_breaker import CircuitBreakerEmbedder
from homarus.memory.index import Index, SyncReport
from homarus.memory.note_files import SkippedFile
from homarus.memory.shared_embedder import SharedEmbedder
from homarus.memory.spec import MemorySpec
from homarus.memory.view import view_for
from tests.unit.memory.builders import make_spec


def note(spec: MemorySpec, path: str, text: str) -> None:
    file = spec.workspace / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


class Hashes:
    """Vectors by the hash of words. Fails when told to."""

    def __init__(self, name: str = "hashes", dims: int = 32) -> None:
        self.model = EmbeddingModel("fake", name, dims)
        self.failure: Exception | None = None
        self.asked: list[str] = []
        self.closed = 0

    def close(self) -> None:
        self.closed += 1

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        if self.failure:
            raise self.failure
        self.asked += texts
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> list[float]:
        sums = [0.0] * self.model.dims
        for word in text.lower().split():
            sums[hashlib.sha256(word.encode()).digest()[0] % self.model.dims] += 1.0
        length = sum(one * one for one in sums) ** 0.5 or 1.0
        return [one / length for one in sums]


@contextmanager
def opened(spec: MemorySpec, embedder: Hashes | None = None) -> Iterator[BuiltinBackend]:
    with closing(BuiltinBackend(spec, embedder)) as backend:
        yield backend


def first_path(backend: BuiltinBackend, text: str, ask: SearchOptions | None = None) -> str:
    return backend.search(text, ask or SearchOptions()).results[0].path


def test_status_after_sync_reports_counts_provider_and_reason(tmp_path: Path) -> None:
    spec = make_spec(tmp_path)
    note(spec, "MEMORY.md", "# Facts\n- The walrus is called Otto.\n- Ada lives in Kiel.\n")
    with opened(spec, Hashes()) as backend:
        before = backend.status()
        assert (before.dirty, before.tested, before.files) == (True, False, 0)
        backend.sync()
        after = backend.status()
    assert (after.agent, after.backend, after.sources) == ("main", "builtin", ("memory",))
    assert (after.provider, after.model, after.why) == ("fake", "hashes", "it was given")
    assert (after.files, after.lines, after.vectors) == (1, 3, 2)
    assert (after.dirty, after.tested, after.problem) == (False, True, "")
    assert (after.fallback, after.notes) == (None, ())


def test_status_file_changed_added_or_removed_is_dirty(tmp_path: Path) -> None:
    spec = make_spec(tmp_path)
    note(spec, "MEMORY.md", "- The walrus is called Otto.\n")
    with opened(spec) as backend:
        backend.sync()
        assert not backend.status().dirty
        note(spec, "MEMORY.md", "- The walrus is called Emil.\n")
        assert backend.status().dirty
        backend.sync()
        note(spec, "memory/new.md", "- something\n")
        assert backend.status().dirty
        backend.sync()
        (spec.workspace / "memory/new.md").unlink()
        assert backend.status().dirty
        backend.sync()
        assert not backend.status().dirty


def test_sync_skipped_files_are_named_in_notes(tmp_path: Path) -> None:
    spec = make_spec(tmp_path)
    (spec.workspace / "memory" / "link.md").symlink_to(tmp_path / "elsewhere.md")
    (spec.workspace / "memory" / "zeros.md").write_bytes(b"\0" * 100)
    (spec.workspace / "memory" / "latin.md").write_bytes(b"- caf\xe9 in Lisbon\n")
    with opened(spec) as backend:
        backend.sync()
        told = " ".join(backend.status().notes)
    assert "memory/link.md (is a link)" in told
    assert "memory/zeros.md (is not text)" in told
    assert "some bytes are not UTF-8 in memory/latin.md" in told


def test_notes_many_skipped_files_names_twenty() -> None:
    skipped = tuple(SkippedFile(f"memory/{number}.md", "is a link") for number in range(25))
    (told,) = describe_report(SyncReport(skipped=skipped))
    assert "memory/19.md" in told
    assert "memory/20.md" not in told
    assert told.endswith("and 5 more")


def test_sync_every_note_gets_owner_and_audience(tmp_path: Path) -> None:
    spec = make_spec(tmp_path)
    note(spec, "MEMORY.md", "- The safe is behind the walrus.\n")
    note(spec, "memory/shared/rules.md", "- The walrus is fed at noon.\n")
    group = SearchOptions(view=view_for("agent:main:telegram:group:-7"))
    with opened(spec) as backend:
        backend.sync()
        assert {one.path for one in backend.search("walrus", SearchOptions()).results} == {
            "MEMORY.md",
            "memory/shared/rules.md",
        }
        found = backend.search("walrus safe", group).results
    assert {one.path for one in found} == {"memory/shared/rules.md"}


# --- vectors that fail


def test_sync_embedder_fails_keeps_words(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    spec, embedder = make_spec(tmp_path), Hashes()
    embedder.failure = ProviderError("no more money")
    note(spec, "MEMORY.md", "- The walrus is called Otto.\n")
    with caplog.at_level(logging.WARNING, "homarus"), opened(spec, embedder) as backend:
        assert backend.sync().indexed == ("MEMORY.md",)
        backend.sync()
        answer = backend.search("walrus", SearchOptions())
        status = backend.status()
    assert (answer.results[0].path, answer.provider) == ("MEMORY.md", "none")
    assert status.fallback == FallbackNotice("fake", "no more money")
    assert any("found by their words only" in told for told in status.notes)
    assert caplog.text.count("no more money") == 1


def test_search_embedder_fails_compares_words(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spec, embedder = make_spec(tmp_path), Hashes()
    note(spec, "MEMORY.md", "- The walrus is called Otto.\n")
    with caplog.at_level(logging.WARNING, "homarus"), opened(spec, embedder) as backend:
        backend.sync()
        assert backend.search("walrus", SearchOptions()).provider == "fake"
        embedder.failure = ProviderError("the service is away")
        for _ in range(2):
            answer = backend.search("walrus", SearchOptions())
            assert (answer.results[0].path, answer.provider) == ("MEMORY.md", "none")
            assert answer.fallback == FallbackNotice("fake", "the service is away")
        assert backend.status().fallback == FallbackNotice("fake", "the service is away")
    assert caplog.text.count("the service is away") == 1


def test_search_vectors_of_other_model_are_not_compared(tmp_path: Path) -> None:
    spec = make_spec(tmp_path)
    note(spec, "MEMORY.md", "- The walrus is called Otto.\n")
    with opened(spec, Hashes("old")) as backend:
        backend.sync()
    other = Hashes("new")
    with opened(spec, other) as backend:
        answer = backend.search("walrus", SearchOptions())
        assert (answer.results[0].path, answer.provider, other.asked) == ("MEMORY.md", "none", [])
        backend.sync()
        assert backend.search("walrus", SearchOptions()).model == "new"


class Nameless(Hashes):
    """A service that has to be asked what its vectors are, and does not answer."""

    @property
    def model(self) -> EmbeddingModel:
        raise ProviderError("nobody is at home")

    @model.setter
    def model(self, _model: EmbeddingModel) -> None:
        pass


def test_sync_embedder_without_model_keeps_words(tmp_path: Path) -> None:
    spec = make_spec(tmp_path)
    note(spec, "MEMORY.md", "- The walrus is called Otto.\n")
    with opened(spec, Nameless()) as backend:
        backend.sync()
        answer = backend.search("walrus", SearchOptions())
        assert (answer.results[0].path, answer.provider) == ("MEMORY.md", "none")
        assert answer.fallback == FallbackNotice("none", "nobody is at home")
        assert backend.status().provider == "none"


def choosing(
    *found: EmbedderChoice,
) -> Callable[[MemorySpec, OnCost, Mapping[str, str]], EmbedderChoice]:
    left = list(found)
    return lambda _place, _spent, _without: left.pop(0)


def test_sync_provider_fails_uses_configured_fallback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = Hashes("first"), Hashes("second")
    first.failure = ProviderError("over quota")
    chosen = [
        EmbedderChoice(SharedEmbedder(CircuitBreakerEmbedder(one)), one.model.name)
        for one in (first, second)
    ]
    monkeypatch.setattr(builtin, "_choose", choosing(*chosen))
    spec = make_spec(tmp_path, {"provider": "openai", "fallback": "wordllama"})
    note(spec, "MEMORY.md", "- The walrus is called Otto.\n")
    with opened(spec) as backend:
        backend.sync()
        answer, status = backend.search("walrus", SearchOptions()), backend.status()
    assert (answer.model, status.model) == ("second", "second")
    assert answer.fallback == status.fallback == FallbackNotice("openai", "over quota")
    assert (first.closed, second.closed) == (1, 1)


def test_sync_fallback_auto_tries_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedders = [Hashes("first"), Hashes("second"), Hashes("third")]
    embedders[0].failure = ProviderError("over quota")
    embedders[1].failure = ProviderError("no route")
    failed: list[dict[str, str]] = []

    def choose(_spec: MemorySpec, _paid: OnCost, without: Mapping[str, str]) -> EmbedderChoice:
        failed.append(dict(without))
        embedder = SharedEmbedder(CircuitBreakerEmbedder(embedders[len(without)]))
        return EmbedderChoice(embedder, provider=("voyage", "openai", "gemini")[len(without)])

    monkeypatch.setattr(builtin, "_choose", choose)
    spec = make_spec(tmp_path, {"provider": "voyage", "fallback": "auto"})
    note(spec, "MEMORY.md", "- The walrus is called Otto.\n")
    with opened(spec) as backend:
        backend.sync()
        answer = backend.search("walrus", SearchOptions())
    assert answer.model == "third"
    assert answer.fallback == FallbackNotice("voyage", "over quota")
    assert failed == [{}, {"voyage": "over quota"}, {"voyage": "over quota", "openai": "no route"}]


@pytest.mark.parametrize("hybrid", [False, True])
def test_chunking_decides_the_size_of_passages(tmp_path: Path, hybrid: bool) -> None:
    text = "\n".join(f"- Entry {n}: the walrus ate {n} herrings." for n in range(40))
    made = []
    for tokens in (400, 32, 400):
        search = {
            "provider": "none",
            "chunking": {"tokens": tokens, "overlap": 1_000},  # shared is at most half of one
            "query": {"hybrid": {"enabled": hybrid}},
        }
        spec = make_spec(tmp_path, search)
        note(spec, "MEMORY.md", text)
        with opened(spec) as backend:
            backend.sync()
            asked = SearchOptions("passages", max_results=1, min_score=0.0)
            best = backend.search("walrus herrings", asked).results[0]
            made.append((backend.status().chunks, best.end_line - best.start_line + 1))
    large, small, again = made
    assert large == again
    assert large[0] < small[0] <= 40
    assert small[1] <= 4


def test_selection_unavailable_embedder_is_retried_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = EmbedderChoice(fallback=FallbackNotice("openai", "there is no key"))
    had = EmbedderChoice(SharedEmbedder(CircuitBreakerEmbedder(Hashes())), "a key was set")
    monkeypatch.setattr(builtin, "_choose", choosing(lost, had))
    now_s = [0.0]
    spec = make_spec(tmp_path, {"provider": "openai"})
    note(spec, "MEMORY.md", "- The walrus is called Otto.\n")
    with closing(BuiltinBackend(spec, monotonic=lambda: now_s[0])) as backend:
        for at_s, provider in ((0.0, "none"), (299.0, "none"), (301.0, "fake")):
            now_s[0] = at_s
            backend.sync()
            answer = backend.search("walrus", SearchOptions())
            assert (answer.provider, answer.results[0].path) == (provider, "MEMORY.md")


def test_search_provider_none_is_no_failure(tmp_path: Path) -> None:
    spec = make_spec(tmp_path)
    note(spec, "MEMORY.md", "- The walrus is called Otto.\n")
    with opened(spec) as backend:
        backend.sync()
        answer, status = backend.search("walrus", SearchOptions()), backend.status()
    assert (answer.provider, answer.fallback, status.fallback) == ("none", None, None)
    assert "provider is none" in status.why


# --- the self-test


def lose_words(monkeypatch: pytest.MonkeyPatch, *, times: int) -> list[int]:
    """Have an index forget its words after it was made, so often."""
    made, left = Index.sync, [times]

    def sync(self: Index, *args: Any, **named: Any) -> SyncReport:
        report = made(self, *args, **named)
        if report.indexed and left[0]:
            left[0] -= 1
            self.database.db.execute("INSERT INTO postings (postings) VALUES ('delete-all')")
            self.database.db.execute("UPDATE lines SET text = 'nothing', flags = 0")
            self.database.seal()
        return report

    monkeypatch.setattr(Index, "sync", sync)
    return left


def test_self_test_newest_note_not_found_rebuilds_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    left = lose_words(monkeypatch, times=1)
    spec = make_spec(tmp_path)
    note(spec, "MEMORY.md", "- The walrus is called Otto.\n")
    with opened(spec) as backend:
        report = backend.sync()
        status = backend.status()
        assert first_path(backend, "walrus") == "MEMORY.md"
    assert left == [0]
    assert report.rebuilt == "the index did not find what is in MEMORY.md"
    assert (status.tested, status.problem) == (True, "")
    assert "does not find MEMORY.md" in caplog.text


def test_self_test_still_failing_after_rebuild_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lose_words(monkeypatch, times=9)
    spec = make_spec(tmp_path)
    note(spec, "MEMORY.md", "- The walrus is called Otto.\n")
    with opened(spec) as backend:
        backend.sync()
        status, answer = backend.status(), backend.search("walrus", SearchOptions())
    assert not status.tested
    assert status.problem == "the index of main does not find what is in MEMORY.md"
    assert status.problem in answer.notes
    assert [one.levelname for one in caplog.records].count("ERROR") == 2


@pytest.mark.parametrize("text", ["", "# \n", "...\n---\n", "a b c\n"])
def test_self_test_note_without_words_passes(tmp_path: Path, text: str) -> None:
    spec = make_spec(tmp_path)
    note(spec, "MEMORY.md", text)
    with opened(spec) as backend:
        backend.sync()
        assert backend.status().problem == ""


@pytest.mark.parametrize(
    "text",
    ["昨日は東京で会いました。\n", "Привет, как дела сегодня\n", "- https://example.org/a?b=c\n"],
)
def test_self_test_scripts_without_spaces_pass(tmp_path: Path, text: str) -> None:
    spec = make_spec(tmp_path)
    note(spec, "MEMORY.md", text)
    with opened(spec) as backend:
        backend.sync()
        assert (backend.status().tested, backend.status().problem) == (True, "")


def test_backend_closed_refuses_every_call(tmp_path: Path) -> None:
    backend = BuiltinBackend(make_spec(tmp_path))
    backend.sync()
    backend.close()
    backend.close()
    with pytest.raises(StoreError, match="closed"):
        backend.sync()
    with pytest.raises(StoreError, match="closed"):
        backend.search("anything", SearchOptions())
