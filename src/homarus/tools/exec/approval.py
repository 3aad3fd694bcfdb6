r"""Build the approval request for a command: complete and exact. Pure.

Nothing in the command may hide. A character is shown as it is only when it cannot be taken for
another one, reorder its neighbours or be overlooked; every other character is shown as `\u{…}`.
Long runs of blanks and line breaks that push the end out of sight are counted. The facts about the
command come first and the command is indented, so it cannot imitate them.
"""

import re
import shlex
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from homarus.core.message import Json
from homarus.core.text import escape_invisible
from homarus.policy.approvals import ApprovalQuestion
from homarus.policy.tool_call import ExecEvaluation

if TYPE_CHECKING:
    from homarus.tools.exec.plan import ExecPlan, SimpleCommand

_LONG_BLANK = re.compile(r"[ \t]{24,}")
_MANY_BREAKS = re.compile(r"\n([ \t]*\n){3,}")
_PLAIN = re.compile(r"[\x20-\x7e\n]*")
_ESCAPE = re.compile(r"\\(?=u\{)")
_LETTERS = re.compile(r"[^\W\d_]+")
# Scripts whose letters are written from left to right, one after the other.
_SCRIPT_NAMES = (
    "LATIN CYRILLIC GREEK CJK HIRAGANA KATAKANA HANGUL BOPOMOFO DEVANAGARI BENGALI GURMUKHI"
    " GUJARATI TAMIL TELUGU KANNADA MALAYALAM SINHALA THAI LAO KHMER MYANMAR GEORGIAN"
    " ETHIOPIC"
)
_SCRIPTS = frozenset(_SCRIPT_NAMES.split())
_LATIN_WITHOUT_BASE = frozenset("ßẞæÆøØœŒđĐłŁþÞðÐŋŊħĦ")
# Letters that look like ASCII ones: a word of nothing else could pass for an English one.
_CYRILLIC_AND_GREEK = re.compile("[\u0370-\u052f\u1c80-\u1c8f\u1f00-\u1fff]")
_LOOKALIKES = frozenset("аАВеЕԁһНіІјЈкКӏӀМоОрРԛԚѕЅТѵѴԝԜхХуУүҮьЬсСαΑΒΕΖΗΙικΚΜΝνοΟρΡΤυΥΧϲϹϳͿ")


def describe_command(
    command: str,
    *,
    folder: str,
    env: Mapping[str, str],
    timeout_s: float,
    facts: Sequence[str] = (),
    always: str = "",
) -> str:
    """Return the text that shows what would run, where and with what.

    `facts` is what else is known about it. `always` says what an answer for good would allow, or
    why there is none.
    """
    lines = command.count("\n") + 1
    size = (
        f"{lines} lines, {len(command)} characters" if lines > 1 else f"{len(command)} characters"
    )
    shown = [f"folder: {folder}", f"time: at most {timeout_s:g} s"]
    shown += [f"variable: {name}={value}" for name, value in sorted(env.items())]
    shown += [*facts, *([f"always: {always}"] if always else [])]
    text = "\n".join(f"    {line}" for line in escape_deceptive_chars(command).split("\n"))
    return "\n".join([*map(escape_line, shown), f"command ({size}):", text])


def plan_question(
    plan: "ExecPlan",
    evaluation: ExecEvaluation,
    *,
    always: str = "",
    why_not_always: str = "",
    allow_always: Callable[[], None] | None = None,
) -> ApprovalQuestion:
    """Return the question about a plan: each program, its hash, and why it is asked about.

    `always` says what allow-always would save; `why_not_always` why it is not offered.
    """
    wire: dict[str, Json] = {
        "command": plan.command,
        "cwd": plan.folder.path,
        "host": "sandbox" if plan.launch else "gateway",
        "resolvedPath": next((each.executable.real_path for each in plan.commands()), None),
    }
    detail = describe_command(
        plan.command,
        folder=plan.folder.path,
        env=plan.requested_env,
        timeout_s=plan.timeout_s,
        facts=_plan_facts(plan, evaluation),
        always=always or f"not offered, because {why_not_always}",
    )
    return ApprovalQuestion(
        "exec",
        "Run this command?",
        detail,
        plan.digest,
        reason=evaluation.reason,
        wire=wire,
        always=always if allow_always else "",
        allow_always=allow_always,
    )


def _plan_facts(plan: "ExecPlan", evaluation: ExecEvaluation) -> list[str]:
    if plan.launch:
        return ["the shell of the sandbox runs it verbatim"]
    if plan.chain is None:
        return [f"not understood: {plan.reason}; the shell runs it as it stands"]
    facts = [] if evaluation.is_satisfied else [f"asked because: {evaluation.reason}"]
    for command, match in zip(plan.commands(), evaluation.matches, strict=True):
        inner: SimpleCommand | None = command
        while inner is not None:
            program = inner.executable
            allowed = f", allowed by {match}" if match else ""
            facts.append(f"program: {program.real_path}, sha256 {program.sha256[:16]}{allowed}")
            if program.script:
                script = program.script
                facts.append(f"script: {script.path}, sha256 {script.sha256[:16]}")
            if inner.argv != inner.words and inner.inner is None:
                facts.append(f"runs as: {shlex.join(inner.argv)}")
            inner = inner.inner
    if plan.stdin:
        facts.append(f"input: {len(plan.stdin)} characters: {plan.stdin[:2000]}")
    return facts


def escape_deceptive_chars(text: str) -> str:
    r"""Return the text with every deceptive character shown as `\u{…}` or counted.

    A text that has `\u{` itself is escaped too, so no two texts look the same.
    """
    seen = text
    if not _PLAIN.fullmatch(text) or _ESCAPE.search(text):
        seen = "".join(_escape(ch) if is_deceptive else ch for ch, is_deceptive in _judge(text))
    seen = _LONG_BLANK.sub(lambda run: f"[{len(run[0])} blanks]", seen)
    return _MANY_BREAKS.sub(lambda run: f"\n[{run[0].count(chr(10)) - 1} empty lines]\n", seen)


def escape_line(text: str) -> str:
    """Return the text escaped, its line breaks too: it stands where one line is one fact."""
    return escape_deceptive_chars(text).replace("\n", _escape("\n"))


def _escape(ch: str) -> str:
    return f"\\u{{{ord(ch):x}}}"


def _judge(text: str) -> list[tuple[str, bool]]:
    """Return each character, and whether it is deceptive where it stands."""
    deceptive = {found.start() for found in _ESCAPE.finditer(text)}
    deceptive |= {
        place
        for word in _LETTERS.finditer(text)
        if _passes_for_ascii(word[0])
        for place in range(word.start(), word.end())
        if _CYRILLIC_AND_GREEK.match(text[place])
    }
    found: list[tuple[str, bool]] = []
    script = ""  # of the letter that a mark belongs to
    for place, ch in enumerate(text):
        is_mark = unicodedata.category(ch) in {"Mn", "Mc"}
        if is_mark and script and unicodedata.name(ch, "").partition(" ")[0] == script:
            is_deceptive = escape_invisible(ch) != ch
        else:
            is_deceptive = place in deceptive or is_mark or _is_deceptive(ch)
            script = "" if is_deceptive or ch.isascii() else _script(ch)
        found.append((ch, is_deceptive))
    return found


def _passes_for_ascii(word: str) -> bool:
    """Return whether a word mixes ASCII letters with others, or has only letters like them."""
    others = _CYRILLIC_AND_GREEK.findall(word)
    return bool(others) and (len(others) < len(word) or all(ch in _LOOKALIKES for ch in others))


def _is_deceptive(ch: str) -> bool:
    if ch.isascii() or escape_invisible(ch) != ch:
        return escape_invisible(ch) != ch
    if not ch.isprintable() or unicodedata.normalize("NFKC", ch).isascii():
        return True  # the second is another form of an ASCII character
    if unicodedata.east_asian_width(ch) == "W":
        return False  # twice as wide as any ASCII character: ideographs and emoji
    if not ch.isalpha() or unicodedata.bidirectional(ch) != "L":
        return True
    if (script := _script(ch)) == "LATIN":
        return ch not in _LATIN_WITHOUT_BASE and not unicodedata.normalize("NFD", ch)[0].isascii()
    return script not in _SCRIPTS


def _script(ch: str) -> str:
    return unicodedata.name(ch, "").partition(" ")[0]
