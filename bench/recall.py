"""How much of what a question needs is found: `python -m bench.recall DATA [--model FOLDER]`.

DATA is a folder of workspaces (`NAME/memory/*.md`) and `gold.jsonl`: a question a line, with
`conv`, `category` and its `evidence` (`path`, `line`, `text`). A piece of evidence counts only when
its words are in the text of a result and its line is in the cited range.

    lines      share of the evidence in the first 1,000 to 8,000 characters of the results
    passages   questions with any of it in six results, or its file among ten

By words alone, with the vectors of `wordllama` where that is installed, and with those of MiniLM
where `homarus models pull minilm` was run, or of the model in `--model`. Ends with 1 when any of
them is below what is wanted. Which weights: `bench.recall_fit`.
"""

import argparse
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from homarus.config.memory import HybridConfig
from homarus.memory.base import SearchOptions
from homarus.memory.chunking import DEFAULT_CHUNK_SIZE, ChunkSize
from homarus.memory.embed.base import Embedder, EmbeddingModel
from homarus.memory.note_search import NoteSearch
from homarus.memory.ranker import LEXICAL, WITH_VECTORS, RankingWeights
from homarus.memory.ranking_settings import RankingSettings, resolve_ranking
from homarus.memory.results import SearchResult

BUDGETS = (1000, 2000, 4000, 8000)
COMPARED_CHARS = 160  # of a turn's words
RESULTS = 60
CHUNK_SIZES = tuple(ChunkSize(*size) for size in ((100, 20), (200, 40), (400, 80), (1024, 128)))
# What is wanted at least; of the characters of six passages, at most.
WANTED = {
    "lines1000": 0.70, "lines2000": 0.79, "lines4000": 0.85, "lines8000": 0.90,
    "any6": 0.90, "sess10": 0.95,
}  # fmt: skip
MOST = {"chars6": 8_400.0, "longest": 1_500.0}
PARTS: Mapping[str, tuple[str, ...]] = {
    "lines before and after": ("around", "wide"),
    "who speaks": ("speaker", "first_of_two"),
    "the day": ("day",),
    "kind of line": ("question", "first_person", "time", "length"),
    "rare words": ("rare",),
    "words that go together": ("related", "related_around"),
    "words side by side": ("phrase",),
    "vectors of neighbours": ("vector_beside", "vector_around"),
}


@dataclass
class Scores:
    """One number for each question, by what is measured."""

    found: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def mean(self, name: str) -> float:
        return statistics.fmean(self.found[name]) if self.found[name] else float("nan")

    def row(self, label: str) -> str:
        names = [*(f"lines{budget}" for budget in BUDGETS), "multi", "any6", "sess10", "chars6"]
        digits = {"chars6": 0}
        shown = [f"{self.mean(name):8.{digits.get(name, 3)}f}" for name in names]
        return f"{label:38}{''.join(shown)}"


HEAD = f"{'':38}" + "".join(
    f"{name:>8}" for name in ("1k", "2k", "4k", "8k", "multi4k", "any@6", "sess@10", "chars@6")
)


class Kept:
    """An embedder that embeds a text once, however often it is asked."""

    def __init__(self, inner: Embedder) -> None:
        self._inner = inner
        self._known: dict[str, list[float]] = {}

    @property
    def model(self) -> EmbeddingModel:
        return self._inner.model

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        new = [text for text in texts if text not in self._known]
        if new:
            self._known.update(zip(new, self._inner.embed(new), strict=True))
        return [self._known[text] for text in texts]


def words(text: str) -> str:
    return re.sub(r"\W+", " ", text.lower()).strip()


def has(result: SearchResult, shown: str, evidence: Mapping[str, Any]) -> bool:
    return (
        result.path == evidence["path"]
        and result.start_line <= evidence["line"] <= result.end_line
        and words(evidence["text"])[:COMPARED_CHARS].strip() in words(shown)
    )


def within(results: Sequence[SearchResult], budget: int) -> Iterator[tuple[SearchResult, str]]:
    """Results while there is room; the last one cut."""
    for result in results:
        if budget <= 0:
            return
        yield result, result.snippet[:budget]
        budget -= len(result.snippet)


def judge_lines(scores: Scores, asked: Mapping[str, Any], lines: Sequence[SearchResult]) -> None:
    evidence = asked["evidence"]
    if not evidence:
        return
    for budget in BUDGETS:
        seen = list(within(lines, budget))
        hit = [any(has(*one, wanted) for one in seen) for wanted in evidence]
        scores.found[f"lines{budget}"].append(statistics.fmean(hit))
    if asked["category"] == "multi-hop":
        scores.found["multi"].append(scores.found["lines4000"][-1])


def judge_passages(
    scores: Scores, asked: Mapping[str, Any], passages: Sequence[SearchResult]
) -> None:
    evidence = asked["evidence"]
    if not evidence:
        return
    first = passages[:6]
    files = {wanted["path"] for wanted in evidence}
    any6 = any(has(one, one.snippet, wanted) for one in first for wanted in evidence)
    scores.found["any6"].append(any6)
    scores.found["chars6"].append(sum(len(one.snippet) for one in first))
    scores.found["sess10"].append(any(one.path in files for one in passages[:10]))


def asked_by_name(data: Path) -> dict[str, list[dict[str, Any]]]:
    """The questions, by the workspace they are asked of."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in (data / "gold.jsonl").read_text("utf-8").splitlines():
        asked = json.loads(line)
        found[asked["conv"]].append(asked)
    return dict(sorted(found.items()))


def measure(
    data: Path,
    state: Path,
    embedder: Embedder | None,
    weights: RankingWeights | None,
    *,
    chunk_size: ChunkSize = DEFAULT_CHUNK_SIZE,
    ranking: RankingSettings | None = None,
) -> tuple[Scores, dict[str, Scores], list[float]]:
    whole, by_name, spent_ms = Scores(), defaultdict[str, Scores](Scores), list[float]()
    ranking = ranking or RankingSettings(weights=weights)
    for name, questions in asked_by_name(data).items():
        with NoteSearch(
            data / name,
            state / f"{name}.sqlite",
            embedder,
            ranking=ranking,
            chunk_size=chunk_size,
        ) as memory:
            memory.sync()
            for asked in questions:
                started = time.perf_counter()
                lines = memory.search(
                    asked["question"], SearchOptions("lines", max_results=RESULTS)
                )
                spent_ms.append((time.perf_counter() - started) * 1000)
                passages = memory.search(
                    asked["question"], SearchOptions("passages", max_results=10)
                )
                longest = max((len(one.snippet) for one in (*lines, *passages)), default=0)
                whole.found["longest"] = [max(longest, *whole.found["longest"], 0)]
                for scores in (whole, by_name[name]):
                    judge_lines(scores, asked, lines)
                    judge_passages(scores, asked, passages)
    return whole, dict(by_name), sorted(spent_ms)


def embedder_of(named: str) -> Embedder | None:
    if named == "none":
        return None
    if named == "wordllama":
        from homarus.memory.embed.wordllama import WordLlamaEmbedder

        return Kept(WordLlamaEmbedder())
    from homarus.memory.embed.onnx import open_onnx

    return Kept(open_onnx(Path(named)))


def models_here() -> Iterator[str]:
    """What can be compared on this machine."""
    from homarus.config.paths import Paths
    from homarus.memory.embed import minilm

    yield "none"
    if find_spec("wordllama"):
        yield "wordllama"
    pulled = minilm.find(Paths.find(os.environ).models_cache)
    if pulled and find_spec("onnxruntime"):
        yield str(pulled)


def shortfall(scores: Scores) -> list[str]:
    """What is below what is wanted."""
    low = [name for name, least in WANTED.items() if not scores.mean(name) >= least]
    return low + [name for name, most in MOST.items() if not scores.mean(name) <= most]


def main(argv: Sequence[str]) -> int:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("bench.recall", description=__doc__, formatter_class=form)
    parser.add_argument("data", type=Path, nargs="?", default=os.environ.get("DATA"))
    parser.add_argument("--model", action="append", default=[], help="a folder of an ONNX model")
    parser.add_argument("--vectors", action="append", help="only none, wordllama, or a folder")
    parser.add_argument(
        "--chunks", action="store_true", help="passages of several sizes, by both rankings"
    )
    parser.add_argument("--parts", action="store_true", help="what each ingredient adds")
    options = parser.parse_args(argv)
    if options.data is None or not (Path(options.data) / "gold.jsonl").is_file():
        parser.error("DATA is missing: a folder with gold.jsonl and workspaces")
    named = options.vectors or [*models_here(), *options.model]
    if not any(map(os.path.isdir, named)):
        told = "without MiniLM: `pip install 'homarus[vectors]'`, `homarus models pull minilm`"
        print(told, file=sys.stderr)
    low: list[str] = []
    print(HEAD)
    for one in named:
        with tempfile.TemporaryDirectory() as folder:
            embedder = embedder_of(one)
            if options.chunks:
                show_chunks(Path(options.data), Path(folder), one, embedder)
                continue
            low += report(Path(options.data), Path(folder), one, embedder)
            if options.parts:
                show_parts(Path(options.data), Path(folder), embedder)
    for told in low:
        print(f"below what is wanted: {told}", file=sys.stderr)
    return 1 if low else 0


def report(data: Path, state: Path, named: str, embedder: Embedder | None) -> list[str]:
    """Print the figures of one model; what is too low."""
    label = "words alone" if named == "none" else Path(named).name
    whole, by_name, spent_ms = measure(data, state, embedder, None)
    print(whole.row(label))
    for name, scores in by_name.items():
        print(scores.row(f"  {name}"))
    middle, late = spent_ms[len(spent_ms) // 2], spent_ms[int(len(spent_ms) * 0.95)]
    longest = whole.mean("longest")
    print(f"  longest result {longest:.0f}; p50 {middle:.1f} ms, p95 {late:.1f} ms", flush=True)
    return [f"{label}: {name} {whole.mean(name):.3f}" for name in shortfall(whole)]


def show_chunks(data: Path, state: Path, named: str, embedder: Embedder | None) -> None:
    """Print the figures of passages of several sizes, ranked by lines and by OpenClaw's formula."""
    formula = resolve_ranking(HybridConfig(enabled=True))
    for label, ranking in (("lines", RankingSettings()), ("hybrid", formula)):
        for size in CHUNK_SIZES:
            whole, _, _ = measure(data, state, embedder, None, chunk_size=size, ranking=ranking)
            print(whole.row(f"{Path(named).name} {label} {size.tokens}/{size.overlap}"), flush=True)


def show_parts(data: Path, state: Path, embedder: Embedder | None) -> None:
    """The figures again, each time without one ingredient."""
    share = embedder.model.weight if embedder else 0.0
    base = LEXICAL.towards(WITH_VECTORS, share)
    for label, names in PARTS.items():
        without = replace(base, **dict.fromkeys(names, 0.0))
        if without != base:
            whole, _, _ = measure(data, state, embedder, without)
            print(whole.row(f"  without {label}"), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
