"""Evaluate a plan: is every simple command of it allowed without a question, and by what."""

from collections.abc import Collection, Sequence
from typing import Final

from homarus.policy.tool_call import ExecEvaluation
from homarus.tools.exec.allowlist import AllowEntry, MatchContext, find_entry
from homarus.tools.exec.arg_policy import (
    Place,
    find_denied_argument,
    is_wrapper,
    program_names,
)
from homarus.tools.exec.git import find_repository_risk
from homarus.tools.exec.plan import ExecPlan, SimpleCommand
from homarus.tools.exec.safe_bins import SAFE_BINS, is_safe_bin

_ABOUT_OUTPUT: Final = frozenset(
    ("LANG", "LANGUAGE", "TZ", "TERM", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "CLICOLOR")
)


def evaluate_plan(
    plan: ExecPlan,
    entries: Sequence[AllowEntry],
    *,
    safe_bins: Collection[str] = SAFE_BINS,
    skill_bins: Collection[str] = (),
) -> ExecEvaluation:
    """Return for each simple command what allows it: a safe form, an entry, a skill, or nothing.

    `entries` are those of the agent (`config.approvals_file.read_allowlist`), `safe_bins` the
    names of the config's safeBins, `skill_bins` the programs of the agent's skills, empty unless
    autoAllowSkills is on.
    """
    if plan.chain is None:
        return ExecEvaluation(is_parsed=False, reason=f"it is not understood: {plan.reason}")
    if unusual := sorted(name for name in plan.requested_env if not is_about_output(name)):
        matches = ("",) * len(list(plan.commands()))
        return ExecEvaluation(is_parsed=True, matches=matches, reason=f"it sets {unusual[0]}")
    judge = CommandJudge(plan, entries, safe_bins, skill_bins)
    found = [judge.judge(each) for each in plan.commands()]
    reason = next((reason for match, reason in found if not match), "")
    return ExecEvaluation(is_parsed=True, matches=tuple(match for match, _ in found), reason=reason)


def plan_context(plan: ExecPlan) -> MatchContext:
    """Return where the commands of a plan run."""
    place = Place(plan.folder.path, plan.workspace, plan.env.get("PATH", ""))
    return MatchContext(place, plan.env.get("HOME", ""))


def is_about_output(name: str) -> bool:
    """Return whether a variable only changes how output looks."""
    return name in _ABOUT_OUTPUT or name.startswith("LC_")


class CommandJudge:
    """Judges the simple commands of one plan."""

    def __init__(
        self,
        plan: ExecPlan,
        entries: Sequence[AllowEntry],
        safe_bins: Collection[str] = SAFE_BINS,
        skill_bins: Collection[str] = (),
    ) -> None:
        self._context = plan_context(plan)
        self._entries, self._safe_bins, self._skill_bins = entries, safe_bins, skill_bins

    def judge(self, command: SimpleCommand) -> tuple[str, str]:
        """Return what allows a command, or "" and why nothing does."""
        executable, place = command.executable, self._context.place
        if command.inner is not None:
            if not executable.is_looked_up:
                return "", f"{executable.name} is not found in a trusted folder"
            return self.judge(command.inner)
        if is_safe_bin(executable, command.words[1:], place, self._safe_bins):
            return f"safe-bin:{executable.name}", ""
        if "git" in program_names(executable) and (
            risk := find_repository_risk(place.folder, place.workspace, self._context.home)
        ):
            return "", f"git may run something: {risk}"
        entry, reason = find_entry(command, self._entries, self._context)
        if entry is not None:
            return f"allowlist:{entry.key}", ""
        if executable.is_looked_up and executable.name in self._skill_bins:
            args = command.words[1:]
            refusal = find_denied_argument(executable, args, 0, place, is_explicit=False)
            if not refusal and not is_wrapper(executable):
                return f"skill:{executable.name}", ""
            reason = refusal
        return "", reason
