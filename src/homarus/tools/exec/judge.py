"""Judge a plan for one agent: the evaluation, the question, and what is saved about entries."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from homarus.config.approvals_file import (
    EntryUse,
    add_allowed,
    agent_entries,
    read_approvals,
    record_use,
)
from homarus.core.fast_dataclass import dataclass
from homarus.policy.approvals import ApprovalQuestion
from homarus.policy.tool_call import ExecEvaluation
from homarus.tools.exec.allowlist import AllowEntry, read_entry
from homarus.tools.exec.always import AlwaysOffer, offer_always
from homarus.tools.exec.approval import plan_question
from homarus.tools.exec.evaluate import evaluate_plan
from homarus.tools.exec.plan import ExecPlan
from homarus.tools.exec.safe_bins import SAFE_BINS

log = logging.getLogger(__name__)

_RECORD_EVERY_S: Final = 60.0
_PREFIX: Final = "allowlist:"
_ALWAYS_ASKED: Final = "the settings say that every command is asked about"
_NO_ENTRIES: Final = (
    "entries do not hold in a conversation without your private notes: commands can read them"
)
_recorded: dict[tuple[str, str, str], float] = {}  # when a use was written, by folder and entry


@dataclass(frozen=True, slots=True)
class JudgedPlan:
    """What the policy, the person and the journal get about a plan.

    `make_question` builds the question, which few plans need. `record_use` is to be awaited once
    the plan was started: it writes which entries it used.
    """

    evaluation: ExecEvaluation
    make_question: Callable[[], ApprovalQuestion]
    record_use: Callable[[], Awaitable[None]]


def judge_plan(
    plan: ExecPlan,
    *,
    state: Path | None,
    agent_id: str,
    safe_bins: Collection[str] | None = None,
    skill_bins: Collection[str] = (),
    asks_always: bool = False,
    sees_private: bool = True,
) -> JudgedPlan:
    """Evaluate a plan by the entries of an agent; the result can build the question about it.

    `state` is the state directory; without one there are no entries, and nothing is saved.
    `safe_bins` is the config's `tools.exec.safeBins`, None where it has none. `skill_bins` are the
    programs of the agent's skills, empty unless autoAllowSkills is on. `asks_always`: the settings
    want a question about every command, so that no entry would save one. `sees_private`: the
    conversation may read the private notes of the workspace. A command can read every file there,
    so entries hold only in such conversations.
    """
    entries = load_entries(state, agent_id)
    enabled = SAFE_BINS if safe_bins is None else safe_bins
    evaluation = evaluate_plan(plan, entries, safe_bins=enabled, skill_bins=skill_bins)
    no_always = _ALWAYS_ASKED if asks_always else ""
    if not sees_private:
        evaluation, no_always = _without_entries(evaluation), no_always or _NO_ENTRIES
    ask = partial(_make_question, plan, evaluation, state, agent_id, no_always)
    return JudgedPlan(evaluation, ask, partial(_record, plan, evaluation, state, agent_id))


def _without_entries(evaluation: ExecEvaluation) -> ExecEvaluation:
    """Return the evaluation where only safe bins need no question."""
    if all(match.startswith("safe-bin:") for match in evaluation.matches if match):
        return evaluation
    matches = tuple(each if each.startswith("safe-bin:") else "" for each in evaluation.matches)
    return replace(evaluation, matches=matches, reason=_NO_ENTRIES)


def _make_question(
    plan: ExecPlan,
    evaluation: ExecEvaluation,
    state: Path | None,
    agent_id: str,
    no_always: str,
) -> ApprovalQuestion:
    offer: AlwaysOffer | str = no_always or offer_always(plan, evaluation)
    if state is None and isinstance(offer, AlwaysOffer):
        offer = "there is no state directory to save it in"
    save = None
    if state is not None and isinstance(offer, AlwaysOffer):
        save = partial(add_allowed, state, agent_id, *offer.entries)
    return plan_question(
        plan,
        evaluation,
        always=offer.text if isinstance(offer, AlwaysOffer) else "",
        why_not_always=offer if isinstance(offer, str) else "",
        allow_always=save,
    )


def load_entries(state: Path | None, agent_id: str) -> list[AllowEntry]:
    """Return the entries of an agent; those that cannot be read allow nothing."""
    if state is None:
        return []
    found = (read_entry(each) for each in agent_entries(read_approvals(state), agent_id))
    return [each for each in found if each is not None]


async def _record(
    plan: ExecPlan, evaluation: ExecEvaluation, state: Path | None, agent_id: str
) -> None:
    """Write the use of entries, each once a minute at most."""
    if state is None:
        return
    now_s = time.monotonic()
    uses: dict[str, EntryUse] = {}
    for command, match in zip(plan.commands(), evaluation.matches, strict=False):
        key = match.removeprefix(_PREFIX)
        known = (str(state), agent_id, key)
        if key != match and now_s - _recorded.get(known, -_RECORD_EVERY_S) >= _RECORD_EVERY_S:
            while command.inner is not None:
                command = command.inner  # noqa: PLW2901 - the command that the entry is for
            uses[key] = EntryUse(key, plan.command, command.executable.real_path)
            _recorded[known] = now_s
    if not uses:
        return
    try:
        await asyncio.to_thread(record_use, state, agent_id, uses, time.time_ns() // 1_000_000)
    except OSError as exc:
        log.warning("the use of an allowlist entry was not saved: %s", exc)
