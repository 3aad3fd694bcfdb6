"""`sandbox`: settings that open a sandbox, calls that leave it, machines without one, escapes.

A case is one of four kinds. `docker` is a section of the config that must be rejected. `call` is a
call of exec, in a session that has a sandbox unless the case has a config of its own, with every
approval given; `missing` is what the machine then lacks. `inside` is a command that prints ESCAPED
if it succeeds; it runs in bubblewrap, and is not run where that does not work.
"""

import asyncio
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest import mock

from homarus.config.check import check_config
from homarus.config.load import load_config
from homarus.config.paths import Paths
from homarus.core.message import Json, ToolCall
from homarus.policy.approvals import ApprovalQuestion
from homarus.policy.tool_call import ToolCallFacts, ToolDecision
from homarus.policy.workspace_access import FULL_ACCESS
from homarus.process import open_app
from homarus.testing.approvals import AskingApprovals
from homarus.tools.execute import execute_tool_call
from homarus.tools.sandbox import container_engine
from homarus.tools.tool import ToolContext
from tests.attacks.cases import Case, Judge, NotRunError
from tests.contract.sandboxes import SandboxStage, bubblewrap_problem, open_backend

_SANDBOXED: Json = {"agents": {"defaults": {"sandbox": {"mode": "all"}}}}
_CONTAINERS: Json = {
    "agents": {"defaults": {"sandbox": {"mode": "all", "docker": {"image": "localhost/box:1"}}}}
}
_MAIN = "agent:main:main"
_ESCAPED = "ESCAPED"
# What stands in for a launcher: it fails as the real one does on such a machine.
_LAUNCHERS: Mapping[str, str] = {
    "user namespaces": 'case "$1" in --version) echo bubblewrap 0.9.0;; --help) ;; *)'
    ' echo "bwrap: No permissions to create new namespace" >&2; exit 1;; esac',
    "a newer bwrap": "echo bubblewrap 0.3.0",
    "an image": 'case "$*" in *image*) exit 1;; esac',
    "a working engine": "echo no engine >&2; exit 125",
}


@contextmanager
def world() -> Iterator[Judge]:
    """Give each case a folder of its own, and all the same backend."""
    with tempfile.TemporaryDirectory() as common:

        def judge(case: Case) -> str:
            with tempfile.TemporaryDirectory() as name:
                folder = Path(os.path.realpath(name))
                if "docker" in case:
                    return _judge_config(case)
                if "inside" in case:
                    return _judge_inside(Path(common), folder, case)
                return _judge_call(folder, case)

        yield judge


def _judge_config(case: Case) -> str:
    section = {"mode": "all", "docker": case["docker"]}
    places: tuple[Json, ...] = (
        {"agents": {"defaults": {"sandbox": section}}},
        {"agents": {"list": [{"id": "main", "sandbox": section}]}},
    )
    accepted = [each for each in places if check_config(each).config is not None]
    outcome = "accept config" if accepted else "reject config"
    return "" if outcome == case["expected"] else f"{outcome}: {accepted}"


def _judge_call(folder: Path, case: Case) -> str:
    canary = folder / "canary"
    args = {"command": f"touch {canary}; echo ran", **case.get("call", {})}
    missing = case.get("missing", "")
    with _without(folder, missing):
        said = use_exec(folder, case.get("config", _config(missing)), args)
    if canary.exists():
        return f"ran on this machine: {said}"
    outcome = "refuse" if said.startswith("refused") else "run"
    if outcome != case["expected"] or "ran" in said.split():
        return said
    text = str(case.get("says", ""))
    return "" if text in said else f"does not say {text!r}: {said}"


def _config(missing: str) -> Json:
    return (
        _CONTAINERS
        if missing in {"docker and podman", "an image", "a working engine"}
        else _SANDBOXED
    )


@contextmanager
def _without(folder: Path, missing: str) -> Iterator[None]:
    """Let this machine lack something."""
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    for name in ("bwrap", "podman"):
        if script := _LAUNCHERS.get(missing):
            (bin_folder / name).write_text(f"#!/bin/sh\n{script}\n")
            (bin_folder / name).chmod(0o755)
    find = shutil.which

    def which(name: str, *_args: object, **_options: object) -> str | None:
        return find(name, path=str(bin_folder))

    with ExitStack() as patches:
        if missing:
            patches.enter_context(mock.patch.object(shutil, "which", which))
            patches.enter_context(mock.patch.object(container_engine, "_docker_socket", _no_socket))
        yield


def _no_socket(_env: object) -> None:
    return None


def use_exec(folder: Path, config: Json, args: Mapping[str, Json], key: str = _MAIN) -> str:
    """Call exec in the sandbox of a session, with every approval given; return its result."""
    (folder / ".openclaw").mkdir(exist_ok=True)
    (folder / ".openclaw" / "openclaw.json").write_text(json.dumps(config))
    env = {"HOME": str(folder)}

    async def main() -> str:
        async with open_app(env, loaded=load_config(Paths.find(env), env)) as app:
            agent = app.agent("main")
            ctx = ToolContext(
                key,
                "main",
                agent.workspace,
                approvals=AskingApprovals(_yes),
                sandbox=app.sandboxes.open(agent, key, FULL_ACCESS),
            )
            call = ToolCall("1", "exec", args)
            given = await execute_tool_call(app.tools("main"), ctx, call, _allow)
            return f"{'refused' if given.is_error else 'done'}: {given.text}"

    return asyncio.run(main())


async def _allow(_call: ToolCallFacts) -> ToolDecision:
    return ToolDecision("allow", "")


async def _yes(_question: ApprovalQuestion) -> bool:
    return True


def _judge_inside(common: Path, folder: Path, case: Case) -> str:
    if problem := bubblewrap_problem():
        raise NotRunError(problem)
    home = folder / "home"
    for name in ("state/credentials", "workspace-other"):
        (home / name).mkdir(parents=True)
    secret = home / "state" / "credentials" / "key"
    other = home / "workspace-other" / "MEMORY.md"
    for path in (secret, other):
        path.write_text("canary")
    stage = SandboxStage(open_backend("bubblewrap", common), folder)
    text = case["inside"].format(secret=secret, other=other, pid=os.getpid(), home=home)
    with mock.patch.dict(os.environ, {"HOMARUS_CANARY": "canary"}):
        result = asyncio.run(stage.run(f"{text} && echo {_ESCAPED}"))
    if _ESCAPED in result.output.split() or "canary" in result.output:
        return result.output[-300:]
    changed = [path.name for path in (secret, other) if path.read_text() != "canary"]
    if changed or result.exit_code is None or result.refusal:
        return f"changed {changed}, ended with {result.exit_code}: {result.refusal}"
    return ""
