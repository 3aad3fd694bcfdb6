"""What allow-always saves for a command: the smallest entries that let it run again.

For a program with rules for its arguments that is OpenClaw's entry, the program's real path. A
command that the rules do not cover is saved exactly as it is, in its folder, with the hash of the
script that it runs. A shell is never saved: its command is, when the grammar understands it.
"""

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.policy.tool_call import ExecEvaluation
from homarus.tools.exec.allowlist import (
    SCRIPT_HASH_KEY,
    AllowEntry,
    MatchContext,
    exact_pattern,
    match_entry,
    script_hash,
)
from homarus.tools.exec.approval import escape_deceptive_chars
from homarus.tools.exec.arg_policy import is_interpreter, is_wrapper, runs_project_code
from homarus.tools.exec.evaluate import CommandJudge, plan_context
from homarus.tools.exec.plan import ExecPlan, SimpleCommand


@dataclass(frozen=True, slots=True)
class AlwaysOffer:
    """The entries that allow-always would save, and what the person is told about them."""

    text: str
    entries: tuple[dict[str, Json], ...]


def offer_always(plan: ExecPlan, evaluation: ExecEvaluation) -> AlwaysOffer | str:
    """Return what allow-always would save, or the reason why it is not offered."""
    if plan.chain is None:
        return f"it is not understood: {plan.reason}"
    if plan.requested_env:
        return "it sets variables"
    if escape_deceptive_chars(plan.command) != plan.command:
        return "it has characters that can be mistaken"
    context, texts, entries = plan_context(plan), list[str](), list[dict[str, Json]]()
    for command, match in zip(plan.commands(), evaluation.matches, strict=True):
        if match:
            continue
        innermost = command
        while innermost.inner is not None:
            innermost = innermost.inner
        found = _entry(innermost, plan, context)
        if isinstance(found, str):
            return found
        texts.append(found[0])
        entries.append({**found[1], "lastUsedCommand": plan.command})
    if not entries:
        return "every command of it has an entry"
    return AlwaysOffer("; ".join(dict.fromkeys(texts)), tuple(entries))


def _entry(
    command: SimpleCommand, plan: ExecPlan, context: MatchContext
) -> tuple[str, dict[str, Json]] | str:
    executable = command.executable
    if executable.in_workspace:
        return "the agent can change that program"
    if is_wrapper(executable):
        return f"{executable.name} runs the command that it is given"
    if is_interpreter(executable) and executable.script is None:
        return f"{executable.name} runs code that is not in a file"
    if runs_project_code(executable) and executable.script is None:
        return f"{executable.name} runs what other files say, and the agent can change them"
    real = executable.real_path
    if match_entry(command, AllowEntry("", real), context) == "":
        entry: dict[str, Json] = {"pattern": real, "lastResolvedPath": real}
        return f"{real}, with arguments that run nothing and stay in the workspace", entry
    entry = {
        "pattern": exact_pattern(command),
        "cwd": plan.folder.path,
        "lastResolvedPath": real,
    }
    text = "exactly this command, in this folder"
    if executable.script is not None:
        entry[SCRIPT_HASH_KEY] = script_hash(executable.script)
        text = f"{text}, while {executable.script.path} stays as it is"
    saved = AllowEntry(
        "",
        entry["pattern"],
        folder=entry["cwd"],
        resolved=real,
        script_hash=script_hash(executable.script),
    )
    match, reason = CommandJudge(plan, [saved]).judge(command)
    return (text, entry) if match else reason
