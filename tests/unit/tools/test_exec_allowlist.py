"""Entries of the allowlist: what they allow, what allow-always saves, and how use is recorded."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from homarus.config.approvals_file import (
    FILE,
    EntryUse,
    add_allowed,
    agent_entries,
    read_approvals,
    record_use,
)
from homarus.core.message import Json
from homarus.policy.tool_call import ExecEvaluation
from homarus.tools.exec import judge
from homarus.tools.exec.allowlist import match_path, read_entry
from homarus.tools.exec.evaluate import evaluate_plan
from homarus.tools.exec.judge import judge_plan, load_entries
from homarus.tools.exec.plan import ExecPlan
from tests.unit.tools.exec_builders import open_plan

LS = str(Path(shutil.which("ls") or "/bin/ls").resolve())


async def evaluate(folder: Path, command: str, *entries: Json, **options: Any) -> ExecEvaluation:
    known = [entry for each in entries if (entry := read_entry(each))]
    skills = options.pop("skill_bins", ())
    async with open_plan(folder, command, **options) as plan:
        return evaluate_plan(plan, known, skill_bins=skills)


@pytest.mark.parametrize(
    ("command", "entry"),
    [
        ("ls -la src", "ls *"),
        ("ls", "ls *"),
        ("ls -la", "ls -la"),
        ("ls -la .", "ls -la *"),
        ("cat notes.md", "cat *.md"),
        ("git status", "git status"),
        ("git status", {"pattern": "git"}),
        ("git diff --stat HEAD~1 -- src", "git diff *"),
        ("git commit -m 'a b; c'", {"pattern": "git"}),
        ("git push origin main", "git push *"),
        ("ls -l", {"pattern": LS}),
        ("ls -l", {"pattern": str(Path(LS).parent / "*")}),
        ("ls -l", {"pattern": "/**/ls"}),
        ("ls", {"pattern": "ls"}),
        ("git log --oneline -n 5", {"pattern": "git", "argPattern": r"log --oneline.*"}),
        ("python3 safe.py", "python3 safe.py"),
        ("python3 safe.py", {"pattern": "python3", "argPattern": r"^safe\.py$"}),
        ("timeout 5 ls -l", "ls *"),
        ("nice -n 5 ls", {"pattern": "ls"}),
        ("sed -n 1,5p notes.md", {"pattern": "sed"}),
        ("awk '{print $1}' notes.md", {"pattern": "awk"}),
        ("grep -rn 'a b' .", {"pattern": "grep"}),
        ("find . -name '*.py' -type f", {"pattern": "find"}),
        ("bash -c 'ls -l'", "ls *"),
        ("git status", {"id": "1", "pattern": "git status"}),
    ],
)
async def test_entry_allows_command(tmp_path: Path, command: str, entry: Json) -> None:
    (tmp_path / "safe.py").write_text("1")
    found = await evaluate(tmp_path, command, entry)
    assert found.is_satisfied, found.reason


@pytest.mark.parametrize(
    ("command", "entry", "reason"),
    [
        ("ls", {"pattern": "l*"}, "no entry"),
        ("ls", {"pattern": "*"}, "no entry"),
        ("ls", {"pattern": "LS"}, "no entry"),
        (LS, {"pattern": "ls"}, "no entry"),
        ("./ls", {"pattern": "ls"}, "no entry"),
        ("./ls", "ls", "no entry"),
        ("ls", {"pattern": "/usr/*"}, "no entry"),
        ("ls x", "ls", "no entry"),
        ("ls -la", "ls *.md", "no entry"),
        ("cat sub/a.md", "cat *.md", "no entry"),
        ("cat -A.md", "cat *.md", "no entry"),
        ("git diff --output=x", "git diff *", "--output"),
        ("git diff --outp=x", "git diff *", "--outp"),
        ("git diff --no-index a b", "git diff *", "--no-index"),
        ("git diff /dev/null /etc/passwd", "git diff *", "not in the workspace"),
        ("git log --format=%GK", {"pattern": "git"}, "signatures"),
        ("git push --receive-pack=x origin", "git push *", "--receive-pack"),
        ("git push origin main", {"pattern": "git"}, "git push may change"),
        ("git fetch ext::sh", {"pattern": "git"}, "only names of remotes"),
        ("git fetch sub", {"pattern": "git"}, "only names of remotes"),
        ("git commit", {"pattern": "git"}, "editor"),
        ("uniq notes.md out", {"pattern": "uniq"}, "operands"),
        ("git config a.b c", "git *", "git config may"),
        ("cat /etc/passwd", {"pattern": "cat"}, "not in the workspace"),
        ("cat ../x", {"pattern": "cat"}, "not in the workspace"),
        ("cat leak", {"pattern": "cat"}, "not in the workspace"),
        ("grep -e root /etc/passwd", {"pattern": "grep"}, "not in the workspace"),
        ("grep -f list x", {"pattern": "grep"}, "-f"),
        ("grep -rnf list x", {"pattern": "grep"}, "-rnf"),
        ("sort -o x notes.md", {"pattern": "sort"}, "-o"),
        ("sort -no x notes.md", {"pattern": "sort"}, "-no"),
        ("find . -delete", {"pattern": "find"}, "-delete"),
        ("sed -i s/a/b/ notes.md", {"pattern": "sed"}, "-i"),
        ("sed 's/a/b/e' notes.md", {"pattern": "sed"}, "harmless in sed"),
        ("awk '{system(\"id\")}'", {"pattern": "awk"}, "harmless in awk"),
        ("python3 safe.py", {"pattern": "python3"}, "runs other programs"),
        ("python3 -c 1", {"pattern": "python3", "argPattern": ".*"}, "code from elsewhere"),
        ("python3", "python3", "would run what it reads"),
        ("env ls", {"pattern": "env"}, "no entry allows ls"),
        ("env A=1 ls", "env *", "runs the command"),
        ("env A=1 ls", "env A=1 ls", "runs the command"),
        ("timeout 5 touch x", {"pattern": "timeout"}, "no entry allows touch"),
        ("timeout --sig=9 5 ls", "ls *", "no entry allows timeout"),
        ("xargs ls", "xargs ls", "runs the command"),
        ("sh -c 'id > x'", "sh -c *", "runs other programs"),
        ("git log", {"pattern": "git", "argPattern": "(?<=a)b"}, "not those"),
        ("git 'log x'", {"pattern": "git", "argPattern": "log x"}, "not those"),
        ("ls > x", "ls *", "not understood: it has a redirection"),
        ("ls && id", "ls *", "no entry allows id"),
        ("ls", {"pattern": 7}, "no entry"),
        ("ls", {"pattern": "ls", "argPattern": 7}, "no entry"),
    ],
)
async def test_entry_does_not_allow_command(
    tmp_path: Path, command: str, entry: Json, reason: str
) -> None:
    for name in ("ls", "safe.py", "notes.md"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "leak").symlink_to("/etc/passwd")
    (tmp_path / "sub").mkdir()
    found = await evaluate(tmp_path, command, entry)
    assert not found.is_satisfied and reason in found.reason


@pytest.mark.parametrize(
    ("command", "is_safe"),
    [
        ("head -n 5", True), ("head -5", True), ("tail -n3", True), ("wc -l", True),
        ("cut -d: -f1", True), ("uniq -c", True), ("tr a-z A-Z", True), ("tr -d x", True),
        ("head notes.md", False), ("head -n 5 x", False), ("head --line=5", False),
        ("tail -f", False), ("wc --files0-from=x", False), ("uniq a b", False),
        ("sort", False), ("grep x", False), ("jq .", False), ("./head", False),
    ],
)  # fmt: skip
async def test_safe_bin_needs_no_entry_in_its_safe_form(
    tmp_path: Path, command: str, is_safe: bool
) -> None:
    (tmp_path / "head").write_text("#!/bin/sh\n")
    (tmp_path / "head").chmod(0o755)
    assert (await evaluate(tmp_path, command)).is_satisfied == is_safe


async def test_safe_bins_of_the_config_only_restrict(tmp_path: Path) -> None:
    async with open_plan(tmp_path, "head -n 5") as plan:
        assert not evaluate_plan(plan, [], safe_bins=("wc",)).is_satisfied
    async with open_plan(tmp_path, "sort -n") as plan:
        assert not evaluate_plan(plan, [], safe_bins=("sort",)).is_satisfied


async def test_skill_binary_is_allowed_when_it_is_listed(tmp_path: Path) -> None:
    found = await evaluate(tmp_path, "ls -l", skill_bins={"ls"})
    assert found.matches == ("skill:ls",)
    assert not (await evaluate(tmp_path, "python3 -c 1", skill_bins={"python3"})).is_satisfied


@pytest.mark.parametrize(
    "config",
    [
        '[filter "x"]\n\tclean = touch pwned\n',
        "[core]\n\tsshCommand = x\n",
        "[core] worktree = /\n",
        "[include]\n\tpath = /x\n",
        '[diff "x"]\n\ttextconv = x\n',
        "[alias]\n\tx = !id\n",
        "[core]\n\tbare = \\\n x\n",
        "nonsense ===",
    ],
)
async def test_git_in_a_repository_with_other_settings_is_asked(
    tmp_path: Path, config: str
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/config").write_text("[core]\n\tbare = false\n[user]\n\tname = n\n")
    assert (await evaluate(tmp_path, "git status", "git status")).is_satisfied
    (tmp_path / ".git/config").write_text(config)
    found = await evaluate(tmp_path, "git status", "git status")
    assert not found.is_satisfied and "git may run something" in found.reason


async def test_git_in_a_repository_that_cannot_be_read_is_asked(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    os.mkfifo(tmp_path / ".git/config")
    found = await evaluate(tmp_path, "git status", "git status")
    assert not found.is_satisfied and "git may run something" in found.reason
    shutil.rmtree(tmp_path / ".git")
    (tmp_path / ".git").write_text("gitdir: other\n")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/commondir").write_text("../common\n")
    (tmp_path / "common").mkdir()
    (tmp_path / "common/config").write_text("[alias]\n\tx = !id\n")
    found = await evaluate(tmp_path, "git status", "git status")
    assert "the setting alias.x" in found.reason
    long = await evaluate(tmp_path, f"git fetch {'a' * 5000}", {"pattern": "git"})
    assert not long.is_satisfied


def test_path_pattern_stays_inside_its_folder() -> None:
    assert match_path("/opt/**/rg", "/opt/a/b/rg") and match_path("/opt/**/rg", "/opt/rg")
    assert match_path("/usr/bin/*", "/usr/bin/ls") and not match_path("/usr/*", "/usr/bin/ls")
    assert match_path("/a/?s", "/a/ls") and not match_path("/a?b", "/a/b")
    assert not match_path("*", "/usr/bin/ls") and not match_path("/a*" * 20, "/a" * 2000)


def write(state: Path, content: Json) -> None:
    state.mkdir(exist_ok=True)
    (state / FILE).write_text(json.dumps(content))


async def judged(state: Path, plan: ExecPlan, **options: Any) -> judge.JudgedPlan:
    return judge_plan(plan, state=state, agent_id="main", **options)


async def test_always_saves_the_real_path_that_openclaw_reads(tmp_path: Path) -> None:
    state = tmp_path / "state"
    before = {"version": 1, "socket": {"path": "s"}, "agents": {"other": {"ask": "always"}}}
    write(state, before)
    async with open_plan(tmp_path, "ls -l && wc -l") as plan:
        question = (await judged(state, plan)).make_question()
        assert question.allow_always and LS in question.always and "wc" not in question.always
        question.allow_always()
        question.allow_always()
        assert (await judged(state, plan)).evaluation.is_satisfied
    stored = json.loads((state / FILE).read_text())
    (entry,) = stored["agents"].pop("main")["allowlist"]
    assert (entry["pattern"], entry["lastResolvedPath"]) == (LS, LS)
    assert entry["lastUsedCommand"] == "ls -l && wc -l" and len(entry["id"]) == 36
    assert stored == before
    assert (state / FILE).stat().st_mode & 0o777 == 0o600


async def test_entries_do_not_hold_without_private_notes(tmp_path: Path) -> None:
    state = tmp_path / "state"
    write(state, {"agents": {"main": {"allowlist": [{"pattern": "cat"}]}}})
    (tmp_path / "MEMORY.md").touch()
    async with open_plan(tmp_path, "cat MEMORY.md | head") as plan:
        assert (await judged(state, plan)).evaluation.is_satisfied
        group = await judged(state, plan, sees_private=False)
        assert group.evaluation.matches == ("", "safe-bin:head")
        assert "private notes" in group.evaluation.reason
        assert group.make_question().allow_always is None
    async with open_plan(tmp_path, "wc -l | head") as plan:
        assert (await judged(state, plan, sees_private=False)).evaluation.is_satisfied


async def test_always_saves_exactly_what_the_rules_do_not_cover(tmp_path: Path) -> None:
    state = tmp_path / "state"
    command = "sort -o out.txt notes.md"
    async with open_plan(tmp_path, command) as plan:
        question = (await judged(state, plan)).make_question()
        assert question.always == "exactly this command, in this folder"
        assert question.allow_always
        question.allow_always()
        assert (await judged(state, plan)).evaluation.is_satisfied
    (tmp_path / "sub").mkdir()
    for folder, other in ((tmp_path, "sort -o x notes.md"), (tmp_path / "sub", command)):
        async with open_plan(folder, other) as plan:
            assert not (await judged(state, plan)).evaluation.is_satisfied


async def test_always_of_a_shell_saves_the_inner_program(tmp_path: Path) -> None:
    state = tmp_path / "state"
    async with open_plan(tmp_path, "bash -lc whoami") as plan:
        question = (await judged(state, plan)).make_question()
        assert (
            question.allow_always
            and question.always.startswith("/")
            and "whoami" in question.always
        )
        question.allow_always()
        assert (await judged(state, plan)).evaluation.is_satisfied
    assert all("bash" not in each.pattern for each in load_entries(state, "main"))
    async with open_plan(tmp_path, "bash -lc 'touch pwned'") as plan:
        assert not (await judged(state, plan)).evaluation.is_satisfied


async def test_always_of_a_script_holds_while_it_is_unchanged(tmp_path: Path) -> None:
    state, script = tmp_path / "state", tmp_path / "x.py"
    script.write_text("1")
    async with open_plan(tmp_path, "python3 x.py") as plan:
        question = (await judged(state, plan)).make_question()
        assert question.allow_always and "while" in question.always
        question.allow_always()
        assert (await judged(state, plan)).evaluation.is_satisfied
    script.write_text("2")
    async with open_plan(tmp_path, "python3 x.py") as plan:
        found = await judged(state, plan)
        assert "the script has changed" in found.evaluation.reason


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("ls > out", "it is not understood: it has a redirection"),
        ("no-such-program-1", "there is no program"),
        ("sh -c 'id > x'", "code that is not in a file"),
        ("python3 -c 1", "code that is not in a file"),
        ("make", "runs what other files say"),
        ("npm test", "runs what other files say"),
        ("xargs ls", "runs the command"),
        ("sudo ls", "runs the command"),
        ("./tool", "the agent can change that program"),
        ("echo 'раypal'", "can be mistaken"),
    ],
)
async def test_always_is_not_offered(tmp_path: Path, command: str, reason: str) -> None:
    (tmp_path / "tool").write_text("#!/bin/sh\n")
    (tmp_path / "tool").chmod(0o700)
    async with open_plan(tmp_path, command) as plan:
        question = (await judged(tmp_path / "state", plan)).make_question()
    assert question.allow_always is None and question.always == ""
    assert "always: not offered, because" in question.detail
    assert reason in question.detail or "there is no program" in question.detail


async def test_always_is_not_offered_where_every_command_is_asked(tmp_path: Path) -> None:
    async with open_plan(tmp_path, "ls") as plan:
        question = (await judged(tmp_path / "state", plan, asks_always=True)).make_question()
    assert question.allow_always is None and "every command is asked about" in question.detail


async def test_question_shows_programs_hashes_and_the_hardened_form(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("1")
    async with open_plan(tmp_path, "git status | head -n 1; python3 x.py") as plan:
        found = await judged(tmp_path / "state", plan)
        programs = [each.executable for each in plan.commands()]
        detail = found.make_question().detail
        assert f"program: {programs[0].real_path}, sha256 {programs[0].sha256[:16]}" in detail
        assert "allowed by safe-bin:head" in detail
        assert "runs as: git -c core.fsmonitor=false" in detail
        assert programs[2].script and f"x.py, sha256 {programs[2].script.sha256[:16]}" in detail
        assert "asked because: no entry allows git" in detail
        assert found.make_question().digest == plan.digest
        assert found.make_question().wire["resolvedPath"] == programs[0].real_path


async def test_exact_entry_of_an_earlier_version_is_obeyed(tmp_path: Path) -> None:
    echo = shutil.which("echo")
    assert echo
    entry = {
        "pattern": f"={echo} one",
        "cwd": str(tmp_path),
        "lastResolvedPath": str(Path(echo).resolve()),
    }
    assert (await evaluate(tmp_path, "echo   one", entry)).is_satisfied
    assert not (await evaluate(tmp_path, "echo two", entry)).is_satisfied
    assert not (await evaluate(tmp_path, "echo one", {**entry, "cwd": "/"})).is_satisfied


def test_entries_of_an_agent_include_those_of_all_agents() -> None:
    agents = {"*": {"allowlist": ["a"]}, "default": {"allowlist": ["b"]}, "x": {"allowlist": ["c"]}}
    assert list(agent_entries({"agents": agents}, "main")) == ["a", "b"]
    assert list(agent_entries({"agents": agents}, "X")) == ["a", "c"]
    assert list(agent_entries({"agents": {"main": {"allowlist": 3}}}, "main")) == []


async def test_use_of_an_entry_is_recorded_once_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge, "_recorded", {})
    state = tmp_path / "state"
    listed = [{"id": "1", "pattern": LS, "note": "n"}, "git diff *", "pwd"]
    write(state, {"version": 1, "agents": {"main": {"allowlist": listed, "ask": "off"}}})
    for command in ("ls -l && git diff && pwd", "ls -a"):
        async with open_plan(tmp_path, command) as plan:
            found = await judged(state, plan)
            assert found.evaluation.is_satisfied, found.evaluation.reason
            await found.record_use()
    first, second, third = read_approvals(state)["agents"]["main"]["allowlist"]
    assert first["lastUsedCommand"] == "ls -l && git diff && pwd" and first["note"] == "n"
    assert first["lastUsedAt"] > 1_700_000_000_000 and first["lastResolvedPath"] == LS
    assert second["pattern"] == "git diff *" and second["lastUsedAt"] == first["lastUsedAt"]
    assert third == "pwd"


def test_recorded_use_never_restores_a_revoked_entry(tmp_path: Path) -> None:
    uses = {"1": EntryUse("1", "ls", LS), "2": EntryUse("2", "ls", LS)}
    write(tmp_path, {"agents": {"main": {"allowlist": [{"id": "1", "pattern": LS}]}}})
    record_use(tmp_path, "main", uses, 5)
    (entry,) = read_approvals(tmp_path)["agents"]["main"]["allowlist"]
    assert entry["id"] == "1" and entry["lastUsedAt"] == 5
    write(tmp_path, {"agents": {"main": {"allowlist": []}}})
    record_use(tmp_path, "main", uses, 6)
    assert read_approvals(tmp_path) == {"agents": {"main": {"allowlist": []}}}


def test_linked_file_is_read_again_after_a_change(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text("{}")
    (tmp_path / FILE).symlink_to(tmp_path / "real.json")
    assert read_approvals(tmp_path) == {}
    (tmp_path / "real.json").write_text('{"defaults": {"security": "deny"}}')
    assert read_approvals(tmp_path) == {"defaults": {"security": "deny"}}


def test_entry_is_not_added_to_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("{")
    with pytest.raises(OSError, match="cannot be read"):
        add_allowed(tmp_path, "main", {"pattern": "/bin/ls"})
    assert (tmp_path / FILE).read_text() == "{"
