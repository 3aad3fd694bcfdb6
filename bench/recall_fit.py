"""The weights of the ranking, fitted on some conversations and tried on another.

    python -m bench.recall_fit DATA [--vectors none|wordllama|FOLDER]

The score of a line is a sum of ingredients, each times its weight; an ingredient alone is the score
with its weight 1 and all others 0. So nothing is computed here that the product computes otherwise.
Fitted is the chance of the evidence among all lines of a conversation (log-linear, by gradient), on
all conversations but one; that one is then searched. The mean of the weights is printed, and what
makes a chance of a score: there, questions of other conversations are asked as well, which nothing
answers.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from bench.recall import HEAD, Scores, asked_by_name, embedder_of, judge_lines
from homarus.memory.candidates import IndexSnapshot, gather_candidates, read_snapshot
from homarus.memory.embed.base import Embedder, embed_question
from homarus.memory.index import open_index
from homarus.memory.note_files import find_notes
from homarus.memory.query import ParsedQuery, parse_query
from homarus.memory.ranker import LEXICAL, CandidatePool, RankingWeights, max_score, rank
from homarus.memory.results import ResultLimits, show_lines
from homarus.memory.vectors import VectorTable
from homarus.memory.view import EVERYTHING

WORDS = (
    *("near", "around", "wide", "rare", "speaker", "first_of_two", "day", "question"),
    *("first_person", "time", "length", "related", "related_around"),
)
VECTORS = ("vector", "vector_beside", "vector_around")
NOTHING = RankingWeights(**{one.name: 0.0 for one in fields(RankingWeights)})
STEPS, RATE, PENALTY = 120, 0.06, 1e-3
FOREIGN_EVERY = 8  # of the questions of other conversations, for the scale of scores
ROOM = ResultLimits(max_results=60)


@dataclass(frozen=True)
class Case:
    """A question with everything that is known about the lines it searches."""

    asked: Mapping[str, Any]
    question: ParsedQuery
    pool: CandidatePool
    ids: Sequence[int]
    table: Any  # a row for each line, a column for each ingredient
    wanted: Any


def read_cases(
    data: Path, state: Path, embedder: Embedder | None, names: Sequence[str]
) -> dict[str, list[Case]]:
    """Return every question of every conversation."""
    by_name = asked_by_name(data)
    return {
        name: list(_cases(data / name, state / f"{name}.sqlite", asked, embedder, names))
        for name, asked in by_name.items()
    }


def _cases(
    place: Path,
    database: Path,
    asked: Sequence[Mapping[str, Any]],
    embedder: Embedder | None,
    names: Sequence[str],
) -> Iterator[Case]:
    with open_index(database, embedder) as index:
        index.sync(lambda: find_notes(place))
        with index.database.reading() as db:
            vectors = VectorTable.read(db, embedder.model) if embedder else None
            snapshot = read_snapshot(db, index.generation, EVERYTHING, vectors)
            for one in asked:
                yield _case(db, snapshot, one, embedder, names)


def _case(
    db: Any,
    snapshot: IndexSnapshot,
    asked: Mapping[str, Any],
    embedder: Embedder | None,
    names: Sequence[str],
) -> Case:
    text = asked["question"]
    question = parse_query(text, snapshot.speakers, snapshot.years)
    pool = gather_candidates(
        db, snapshot, question, embed_question(embedder, text) if embedder else None
    )
    ids = sorted(pool.lines)
    table = np.zeros((len(ids), len(names)), np.float32)
    for column, name in enumerate(names):
        alone = rank(question, pool, replace(NOTHING, **{name: 1.0}))
        worth = {one.line.id: one.score for one in alone}
        table[:, column] = [worth.get(at, 0.0) for at in ids]
    places = {(wanted["path"], wanted["line"]) for wanted in asked["evidence"]}
    wanted = [(pool.notes[pool.lines[at].note].path, pool.lines[at].line) in places for at in ids]
    return Case(asked, question, pool, ids, table, np.array(wanted, np.float32))


def fit(cases: Sequence[Case]) -> Any:
    """Return the weights that make the evidence most likely."""
    used = [case for case in cases if case.wanted.any()]
    spread = np.sqrt(np.mean([case.table.var(0) for case in used], 0)) + 1e-6
    tables = [case.table / spread for case in used]
    goals = [case.wanted / case.wanted.sum() for case in used]
    weights = np.zeros(tables[0].shape[1])
    mean, square = np.zeros_like(weights), np.zeros_like(weights)
    for step in range(1, STEPS + 1):
        slope = PENALTY * weights
        for table, goal in zip(tables, goals, strict=True):
            score = table @ weights
            odds = np.exp(score - score.max())
            slope = slope + (odds / odds.sum() - goal) @ table / len(tables)
        mean, square = 0.9 * mean + 0.1 * slope, 0.99 * square + 0.01 * slope**2
        pace = mean / (1 - 0.9**step) / (np.sqrt(square / (1 - 0.99**step)) + 1e-8)
        weights = weights - RATE * pace
    return weights / spread


def weights_of(names: Sequence[str], fitted: Sequence[float]) -> RankingWeights:
    """Return the weights as the product has them, with fitted values where they are fitted."""
    given = {name: float(value) for name, value in zip(names, fitted, strict=True)}
    given["length"] -= 1.0
    return replace(LEXICAL, **given)


def search(case: Case, weights: RankingWeights) -> list[Any]:
    ranked = [one for one in rank(case.question, case.pool, weights) if one.is_told]
    return show_lines(ranked, case.pool.notes, ROOM, lambda score: score)


def scale(
    cases: Mapping[str, Sequence[Case]], weights: RankingWeights, more: Sequence[Case]
) -> Any:
    """Return the slope and offset that turn a score into a probability, by Newton's method."""
    scores, hits = [], []
    for case in [*(one for held in cases.values() for one in held), *more]:
        ranked = [one for one in rank(case.question, case.pool, weights) if one.is_told]
        place = {at: bool(hit) for at, hit in zip(case.ids, case.wanted, strict=True)}
        most = max_score(case.question, case.pool, weights)
        scores += [one.score - most for one in ranked]
        hits += [place[one.line.id] for one in ranked]
    table = np.stack([np.array(scores), np.ones(len(scores))], 1)
    goal, found = np.array(hits, float), np.array([0.0, np.log(np.mean(hits))])
    for _ in range(100):
        odds = 1 / (1 + np.exp(-np.clip(table @ found, -60, 60)))
        steep = (table * (odds * (1 - odds) + 1e-9)[:, None]).T @ table
        step = np.linalg.solve(steep, table.T @ (goal - odds))
        found = found + step * min(1.0, 0.1 / (np.abs(step[0]) + 1e-9))  # never far at once
    found[1] += np.log(1 / goal.mean() - 1)  # as if there were as much evidence as other lines
    odds = 1 / (1 + np.exp(-np.clip(table @ found, -60, 60)))
    for least in (0.1, 0.35, 0.5, 0.8):
        kept = odds >= least
        share = kept[goal > 0].mean(), kept[goal == 0].mean()
        print(
            f"  score {least} and more: {share[0]:.1%} of the evidence, {share[1]:.1%} of the rest"
        )
    return found


def _foreign(
    data: Path, state: Path, embedder: Embedder | None, names: Sequence[str]
) -> list[Case]:
    """Return questions asked of conversations that do not answer them."""
    by_name = asked_by_name(data)
    found: list[Case] = []
    for name in by_name:
        others = [one for other, asked in by_name.items() if other != name for one in asked]
        unanswered = [{**one, "evidence": []} for one in others[::FOREIGN_EVERY]]
        place, database = data / name, state / f"{name}.sqlite"
        found += _cases(place, database, unanswered, embedder, names[:1])
    return found


def main(argv: Sequence[str]) -> int:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("bench.recall_fit", description=__doc__, formatter_class=form)
    parser.add_argument("data", type=Path)
    parser.add_argument("--vectors", default="none", help="none, wordllama, or a folder")
    options = parser.parse_args(argv)
    embedder = embedder_of(options.vectors)
    names = WORDS + (VECTORS if embedder else ())
    with tempfile.TemporaryDirectory() as folder:
        cases = read_cases(options.data, Path(folder), embedder, names)
        print(HEAD)
        whole, fitted = Scores(), []
        for name, held in cases.items():
            others = [case for other, known in cases.items() if other != name for case in known]
            fitted.append(fit(others))
            weights, scores = weights_of(names, fitted[-1]), Scores()
            for case in held:
                lines = search(case, weights)
                for one in (whole, scores):
                    judge_lines(one, case.asked, lines)
            print(scores.row(f"  {name}, by weights of the others"), flush=True)
        print(whole.row("all, each by weights of the others"))
        mean = weights_of(names, np.mean(fitted, 0))
        print("the mean:", *(f"{name}={getattr(mean, name):.3g}" for name in names))
        foreign = _foreign(options.data, Path(folder), embedder, names)
        slope, offset = scale(cases, mean, foreign)
        print(f"a chance of a score: slope={slope:.3f} offset={offset:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
