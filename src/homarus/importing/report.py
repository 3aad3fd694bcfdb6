"""The counts of an import, per kind, and what it did not copy as it was."""

from dataclasses import field
from typing import Final, Literal, TypeAlias

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.importing.source_tree import shown

Kind: TypeAlias = Literal[
    "sessions", "transcripts", "memory", "cronJobs", "credentials", "approvedSenders"
]
Outcome: TypeAlias = Literal["imported", "updated", "present", "keptBeside", "conflicts", "skipped"]
KINDS: Final[tuple[Kind, ...]] = (
    "sessions", "transcripts", "memory", "cronJobs", "credentials", "approvedSenders",
)  # fmt: skip
OUTCOMES: Final[tuple[Outcome, ...]] = (
    "imported", "updated", "present", "keptBeside", "conflicts", "skipped",
)  # fmt: skip
ADDED: Final[frozenset[Outcome]] = frozenset({"imported", "keptBeside"})
MAX_NOTES: Final = 1_000


@dataclass(slots=True)
class KindCounts:
    """What happened to the items of one kind; `before` and `after` count those of the target."""

    before: int = 0
    after: int = 0
    outcomes: dict[Outcome, int] = field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))

    @property
    def source(self) -> int:
        return sum(self.outcomes.values())

    @property
    def added(self) -> int:
        return sum(self.outcomes[name] for name in ADDED)


@dataclass(frozen=True, slots=True)
class ImportNote:
    """One item that was not simply copied, or a fact that the user has to know."""

    kind: str
    item: str
    text: str


@dataclass(slots=True)
class ImportReport:
    """The result of an import, or of a rehearsal of one."""

    source: str
    target: str
    is_dry_run: bool = False
    counts: dict[Kind, KindCounts] = field(
        default_factory=lambda: {kind: KindCounts() for kind in KINDS}
    )
    messages: int = 0  # that were added to sessions
    damaged_lines: int = 0
    notes: list[ImportNote] = field(default_factory=list)
    left_off: int = 0  # notes above MAX_NOTES

    def add(self, kind: Kind, outcome: Outcome, item: str = "", text: str = "") -> None:
        """Count an item, and note it if there is a text."""
        self.counts[kind].outcomes[outcome] += 1
        if text:
            self.note(kind, item, text)

    def note(self, kind: str, item: str, text: str) -> None:
        if len(self.notes) < MAX_NOTES:
            self.notes.append(ImportNote(kind, shown(item), text))
        else:
            self.left_off += 1

    def as_json(self) -> dict[str, Json]:
        """Return the report as `--json` prints it."""
        return {
            "ok": True,
            "dryRun": self.is_dry_run,
            "source": self.source,
            "target": self.target,
            "kinds": {
                kind: {
                    "source": one.source,
                    "before": one.before,
                    **one.outcomes,
                    "after": one.after,
                }
                for kind, one in self.counts.items()
            },
            "messages": self.messages,
            "damagedLines": self.damaged_lines,
            "notes": [{"kind": one.kind, "item": one.item, "text": one.text} for one in self.notes],
            "notesLeftOff": self.left_off,
        }
