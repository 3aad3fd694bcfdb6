"""Commands allowed for good: exactly those, in the file that OpenClaw reads too."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from homarus.config.approvals_file import FILE, allowlist_sizes, read_approvals
from homarus.config.schema import Config
from homarus.core.message import Address, Json
from homarus.tools.builtin.exec import tools
from homarus.tools.exec.allowlist import CommandLine, ExactCommand, exact_command
from homarus.tools.sources import ToolSourceContext
from homarus.tools.tool import ApprovalRequest, ToolContext, ToolOutput

PATH = os.environ["PATH"]


def line(command: str, folder: Path, **env: str) -> CommandLine:
    return CommandLine(command, str(folder), {"PATH": PATH, **env}, env)


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("ls > out", "shell syntax (>)"),
        ("ls | wc", "shell syntax (|)"),
        ("ls; id", "shell syntax (;)"),
        ("ls\nid", "shell syntax (a line break)"),
        ("echo $HOME", "shell syntax ($)"),
        ('echo "$HOME"', "shell syntax ($)"),
        ("echo `id`", "shell syntax (`)"),
        ("ls *.md", "shell syntax (*)"),
        ("cat ~/x", "shell syntax (~)"),
        ("echo 'open", "shell syntax"),
        ("A=1 ls", "sets variables"),
        ("sh -c ls", "runs what other files say"),
        ("python3 build.py", "runs what other files say"),
        ("make", "runs what other files say"),
        ("./tool", "the agent can change that program"),
        ("no-such-program-1", "there is no program"),
        ("echo 'раypal'", "can be mistaken"),
    ],
)
def test_command_that_may_mean_more_gets_no_entry(
    tmp_path: Path, command: str, reason: str
) -> None:
    (tmp_path / "tool").write_text("#!/bin/sh\n")
    (tmp_path / "tool").chmod(0o700)
    (tmp_path / "make").symlink_to("/bin/sh")
    made = line(command, tmp_path)
    found = exact_command(
        CommandLine(made.command, made.folder, {"PATH": f"{tmp_path}:{PATH}"}, {}), tmp_path
    )
    assert isinstance(found, str) and reason in found


def test_entry_is_the_program_with_its_arguments(tmp_path: Path) -> None:
    found = exact_command(line("echo  'a|b' \"it's\"", tmp_path), tmp_path)
    assert isinstance(found, ExactCommand)
    assert found.pattern.startswith("=/") and found.pattern.endswith("""/echo 'a|b' 'it'"'"'s'""")
    assert exact_command(line("echo x", tmp_path, TZ="UTC"), tmp_path) == "it sets variables"


class Terminal:
    """The exec tool of an agent, and a person who answers questions."""

    def __init__(self, folder: Path, config: dict[str, Json] | None = None) -> None:
        self.state, self.workspace = folder / "state", folder / "ws"
        self.workspace.mkdir(parents=True, exist_ok=True)
        self.asked: list[ApprovalRequest] = []
        self.answer: Callable[[ApprovalRequest], bool] = lambda _question: True
        made = Config.model_validate(config or {})
        source = ToolSourceContext("main", made, lambda _n: made.tools, state=self.state)
        (self.tool,) = tools(source)

    async def run(self, command: str, *, channel: str = "cli", workdir: str = ".") -> ToolOutput:
        async def ask(question: ApprovalRequest) -> bool:
            self.asked.append(question)
            return self.answer(question)

        here = Address(channel=channel, chat="local")
        ctx = ToolContext("agent:main:main", "main", self.workspace, ask, here=here)
        output = await self.tool(ctx, {"command": command, "workdir": workdir})
        assert isinstance(output, ToolOutput)
        return output


def allow(question: ApprovalRequest) -> bool:
    assert question.allow_always and "always: exactly this command" in question.detail
    question.allow_always()
    return True


async def test_always_is_stored_and_obeyed_for_exactly_that_command(tmp_path: Path) -> None:
    it = Terminal(tmp_path)
    it.state.mkdir()
    before = {"version": 1, "socket": {"path": "s"}, "agents": {"other": {"ask": "always"}}}
    (it.state / FILE).write_text(json.dumps(before))
    it.answer = allow
    await it.run("echo one")
    await it.run("echo   one")
    await Terminal(tmp_path).run("echo one")
    assert len(it.asked) == 1
    stored = json.loads((it.state / FILE).read_text())
    (entry,) = stored["agents"]["main"].pop("allowlist")
    assert entry["pattern"].endswith("/echo one") and entry["lastUsedCommand"] == "echo one"
    assert entry["cwd"] == str(it.workspace) and len(entry["id"]) == 36
    del stored["agents"]["main"]
    assert stored == before
    assert (it.state / FILE).stat().st_mode & 0o777 == 0o600
    assert allowlist_sizes(read_approvals(it.state)) == {}, "no pattern of OpenClaw is ignored"
    (it.workspace / "sub").mkdir()
    for asked, (command, channel, workdir) in enumerate(
        [("echo two", "cli", "."), ("echo one", "telegram", "."), ("echo one", "cli", "sub")], 2
    ):
        it.answer = lambda _question: True
        await it.run(command, channel=channel, workdir=workdir)
        assert len(it.asked) == asked


async def test_always_is_not_offered_where_every_command_is_asked_about(tmp_path: Path) -> None:
    first = Terminal(tmp_path)
    first.answer = allow
    await first.run("echo one")
    strict = Terminal(tmp_path, {"tools": {"exec": {"ask": "always"}}})
    await strict.run("echo one")
    (question,) = strict.asked
    assert question.allow_always is None and "always: not offered" in question.detail


async def test_always_says_why_it_is_not_offered(tmp_path: Path) -> None:
    it = Terminal(tmp_path)
    await it.run("echo one > out")
    assert it.asked[0].allow_always is None
    assert "always: not offered, because it has shell syntax (>)" in it.asked[0].detail


async def test_patterns_of_openclaw_allow_nothing(tmp_path: Path) -> None:
    it = Terminal(tmp_path)
    it.state.mkdir()
    listed = [{"id": "1", "pattern": "/usr/bin/echo"}, "/bin/echo", {"pattern": "*"}]
    (it.state / FILE).write_text(json.dumps({"agents": {"main": {"allowlist": listed}}}))
    await it.run("echo one")
    assert len(it.asked) == 1
    assert allowlist_sizes(read_approvals(it.state)) == {"main": 3}
