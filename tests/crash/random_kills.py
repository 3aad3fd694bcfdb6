"""Kill the gateway at random moments of each row's turn, and count what became of the messages.

A scenario is the message that makes a row's moment occur. `kill_once` sends it in a few chats at
once, kills the gateway somewhere in the turn, starts it again, and waits for every answer.
"""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from homarus.store.sqlite import SqliteStore
from tests.crash.harness import Flavour, Launch, Rig, wait_for

CHATS = 3  # that write concurrently
TURNS = 12  # messages of one chat before another replaces it
SECOND_KILL_SHARE = 0.25  # how often the next start is killed too
START_S = 0.4  # about how long a start takes, recovery included

ECHO = "T#{nonce} MOCK:echo"
TOOL = 'T#{nonce} MOCK:tool:exec:{"command":"%s"}§ MOCK:next MOCK:echo'
PARTS = 4
PART_CHARS = 300


def side_effect_call(side: Path, then: str = "true") -> str:
    """Return a tool call with a side effect that can be counted."""
    return TOOL % f"echo {{nonce}} >> {side}; {then}"


def long_reply() -> tuple[str, tuple[str, ...]]:
    """Return a message whose echo has several parts, with a mark in each."""
    marks = tuple(f"{{nonce}}-part-{n}" for n in range(1, PARTS + 1))
    filler = "word " * (PART_CHARS * 3 // 4 // 5)
    return "MOCK:echo " + "\n\n".join(f"{mark} {filler}" for mark in marks), marks


@dataclass(frozen=True, slots=True)
class KillScenario:
    """The message and service of one row. `window_s` is about how long its turn takes."""

    row: int
    flavour: Flavour = "idempotent"
    text: str = ECHO  # {side} is the file that tools write to
    window_s: float = 0.12
    marks: tuple[str, ...] = ("{nonce}",)
    text_limit: int = 4_000
    answer_s: float = 0.0  # how long the service takes to confirm a reply
    queue_mode: str = ""  # then each chat sends a second message while the first is answered


def kill_scenarios() -> list[KillScenario]:
    """Return rows 1 to 14, once for each flavour of service where that matters, and row 56."""
    tool = TOOL % "echo {nonce} >> {side}"
    slow_tool = TOOL % "echo {nonce} >> {side}; sleep 0.2"
    text, marks = long_reply()
    flavours: tuple[Flavour, ...] = ("idempotent", "lookup", "plain")
    return [
        KillScenario(1, window_s=0.04),
        KillScenario(2, "lookup", window_s=0.05),
        KillScenario(3, window_s=0.06),
        KillScenario(4, "lookup"),
        KillScenario(5, text="T#{nonce} MOCK:delay:150 MOCK:echo", window_s=0.3),
        KillScenario(6, "lookup", text="T#{nonce} MOCK:long:30:5 MOCK:echo", window_s=0.3),
        KillScenario(7, text=tool, window_s=0.25),
        KillScenario(8, "lookup", text=slow_tool, window_s=0.45),
        KillScenario(9, text=tool, window_s=0.25),
        KillScenario(10, "lookup", text=tool.replace("next", "next MOCK:delay:100"), window_s=0.35),
        KillScenario(11),
        *(KillScenario(12, flavour, window_s=0.25, answer_s=0.15) for flavour in flavours),
        *(KillScenario(13, flavour, window_s=0.15, answer_s=0.03) for flavour in flavours),
        KillScenario(14, "plain", text, 0.2, marks, PART_CHARS),
        KillScenario(14, "lookup", text, 0.2, marks, PART_CHARS),
        KillScenario(56, text=slow_tool, window_s=0.9, marks=(), queue_mode="steer-backlog"),
        KillScenario(56, "lookup", slow_tool, window_s=0.9, marks=(), queue_mode="steer"),
    ]


@dataclass(slots=True)
class KillResults:
    """The counts and outcomes of the messages of one scenario.

    `resumed` had been started when their gateway died; `unknown` are marked so, and never resent.
    """

    timings: int = 0
    kills: int = 0
    offered: int = 0
    answered: int = 0
    resumed: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    unknown: int = 0
    worst_s: float = 0.0
    faults: list[str] = field(default_factory=list)  # other violated guarantees

    @property
    def is_good(self) -> bool:
        return not (self.lost or self.doubled or self.faults)


class RandomKills:
    """Runs one scenario on a rig of its own."""

    def __init__(self, launch: Launch, folder: Path, scenario: KillScenario, seed: int) -> None:
        self.scenario, self._random = scenario, Random(f"{scenario.row}-{scenario.flavour}-{seed}")
        queue = {"mode": scenario.queue_mode, "debounceMs": 10}
        config = {"messages": {"queue": queue}} if scenario.queue_mode else {}
        self.rig = Rig(
            launch, folder, flavour=scenario.flavour, text_limit=scenario.text_limit, config=config
        )
        self.results = KillResults()
        self._nonces: dict[str, str] = {}  # by message id
        self._steering: set[str] = set()  # ids of messages that were sent while another ran

    def run(self, timings: int) -> KillResults:
        """Kill the gateway this many times at random moments, then check what is left."""
        rig = self.rig
        if self.scenario.answer_s:
            rig.fail_sends({"waitS": self.scenario.answer_s, "times": 1_000_000})
        rig.start()
        rig.offer(ECHO, "warm-up")
        rig.settle()
        for number in range(timings):
            self.kill_once(number)
        self._check_results()
        return self.results

    def kill_once(self, number: int) -> None:
        """Send the messages, kill the gateway at a random moment, and wait for the answers."""
        rig, scenario = self.rig, self.scenario
        for chat in range(CHATS):
            name = f"chat-{chat}-{number // TURNS}"
            text = scenario.text.replace("{side}", str(rig.side))
            message = rig.offer(text, name, marks=scenario.marks)
            self._nonces[message["id"]] = message["nonce"]
        if scenario.queue_mode:
            time.sleep(self._random.uniform(0, scenario.window_s / 3))
            self._steer(number)
        time.sleep(self._random.uniform(0, scenario.window_s))
        self._kill()
        if self._random.random() < SECOND_KILL_SHARE:
            time.sleep(self._random.uniform(0, START_S))
            self._kill()
        self.results.timings += 1
        self._wait()

    def _steer(self, number: int) -> None:
        """Send a second message in every chat."""
        for chat in range(CHATS):
            message = self.rig.offer(ECHO, f"chat-{chat}-{number // TURNS}", marks=())
            self._nonces[message["id"]] = message["nonce"]
            self._steering.add(message["id"])

    def _kill(self) -> None:
        self.rig.kill()
        self.results.kills += 1
        self.rig.start()

    def _wait(self) -> None:
        """Wait until every message is answered, or marked as sent with no known outcome."""
        if self.scenario.queue_mode:  # one reply may answer two messages: no mark identifies it
            wait_for(self._is_settled, "every message is settled")
        elif self.scenario.flavour != "plain":
            self.rig.settle()
        else:
            self.rig.settle(unknown=True)

    def _is_settled(self) -> bool:
        rows, outbox = self.rig.inbox(), self.rig.outbox()
        sent = all(one.state == "sent" for one in outbox)
        return sent and len(rows) == len(self._nonces) + 1 and all(row.settled_ms for row in rows)

    def _check_results(self) -> None:
        rig, results = self.rig, self.results
        verdict = rig.verdict()
        unknown = rig.unknown()
        results.offered, results.answered = verdict.offered, len(verdict.answered)
        results.unknown, results.worst_s = len(unknown), verdict.worst_s
        results.doubled = verdict.doubled
        results.resumed = sum(row.attempts > 1 for row in rig.inbox())
        results.lost = [one for one in (*verdict.lost, *verdict.waiting, *verdict.reported)
                      if self.scenario.flavour != "plain" or one not in unknown]  # fmt: skip
        results.faults = [*self._wrong_rows(), *self._wrong_questions(), *self._wrong_effects()]
        results.faults += rig.read_store(_calls_without_result)

    def _wrong_rows(self) -> list[str]:
        rows = self.rig.inbox()
        count = Counter(row.message_id for row in rows)
        twice = [f"{one} has {n} rows" for one, n in count.items() if n > 1]
        return twice + [f"{r.message_id} is {r.state}" for r in rows if r.state != "answered"]

    def _wrong_questions(self) -> list[str]:
        """Check that every question is in its transcript exactly once."""
        if not self.scenario.text.startswith("T#"):
            return []
        text = "\n".join(self.rig.read_store(_questions))
        wrong = {one: text.count(f"T#{nonce}") for one, nonce in self._nonces.items()}
        # Steering with a backlog means: now, and again in a run of its own.
        most = {one: 2 for one in self._steering if self.scenario.queue_mode == "steer-backlog"}
        return [
            f"the question {one} is there {n} times"
            for one, n in wrong.items()
            if not 1 <= n <= most.get(one, 1)
        ]

    def _wrong_effects(self) -> list[str]:
        counts = {one: self.rig.side_effects(nonce) for one, nonce in self._nonces.items()}
        return [f"the tool of {one} ran {n} times" for one, n in counts.items() if n > 1]


async def _questions(store: SqliteStore) -> Sequence[str]:
    questions: list[str] = []
    for record in await store.sessions():
        for entry in await store.entries(record.session_id):
            message = entry.data.get("message")
            if entry.type == "message" and message and message["role"] == "user":
                questions.append(str(message["content"]))
    return questions


async def _calls_without_result(store: SqliteStore) -> list[str]:
    """Return the tool calls that have no result in their transcript."""
    missing: list[str] = []
    for record in await store.sessions():
        calls, results = set[str](), set[str]()
        for entry in await store.entries(record.session_id):
            message = entry.data.get("message") or {}
            if message.get("role") == "assistant":
                parts = message["content"]
                calls |= {part["id"] for part in parts if part.get("type") == "toolCall"}
            results |= (
                {str(message["toolCallId"])} if message.get("role") == "toolResult" else set()
            )
        missing += [f"the call {call} in {record.key} has no result" for call in calls - results]
    return missing
