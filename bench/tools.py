"""The cost of deciding about a tool call: the plan of its command, the policy, the audit rows.

And that of a sandbox: a command that does nothing, by its launcher and without one. Of a decision,
what the tool itself does is not counted, and neither is the start of a process. The two audit rows
are stored in the transaction that journals the call; what that costs without them is subtracted.
"""

import asyncio
import subprocess
import sys
import tempfile
import time
from itertools import count
from pathlib import Path
from statistics import median

from bench.app import configure
from bench.figure import USUAL_MS, CpuClock, Figure, private_env, weather_ms
from homarus.agent.call_audit import CallAudit
from homarus.app import App
from homarus.core.errors import SandboxError
from homarus.core.message import Text, ToolCall, ToolResult
from homarus.plugins.values import HookContext
from homarus.policy.decision import decide_tool_call
from homarus.policy.tool_call import CallerFacts, TaintSource
from homarus.process import open_app
from homarus.tools.execute import prepare_call
from homarus.tools.sandbox.base import SandboxCommand, SandboxSpec
from homarus.tools.sandbox.bubblewrap import create
from homarus.tools.tool import ToolContext

KEY = "agent:main:bench"
COMMAND = "git diff | head"  # two programs to find and hash, and the settings of git to read
CALLER = CallerFacts("main", KEY, taint=(TaintSource("web", "https://a.example"),))
WARM_UP = 20
FEW = 10  # calls, so few that the machine's pace seldom changes between


def measure(*, quick: bool) -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        figures = asyncio.run(_measure(Path(folder), 10 if quick else 40))
        return figures + measure_spawns(Path(folder), 20 if quick else 60)


def measure_spawns(home: Path, times: int) -> list[Figure]:
    """Return how often a plain spawn of `true` fits into one in a sandbox.

    Both are timed in turn and by the clock. Nothing is returned on a machine without bubblewrap.
    """
    spec = SandboxSpec("bench", home / "sandbox-workspace", home / "sandbox-tmp")
    for each in (spec.workspace, spec.tmp):
        each.mkdir()
    sandbox = create(home / "sandbox-scratch")
    try:
        asyncio.run(sandbox.prepare(spec))
    except SandboxError as exc:
        print(f"bench: no figure of sandboxes: {exc}", file=sys.stderr)
        return []
    plain, sandboxed = list[float](), list[float]()
    for _ in range(times):
        plain.append(_time_spawn(("/bin/true",), ()))
        launch = sandbox.spawn(spec, SandboxCommand("true"))
        sandboxed.append(_time_spawn(launch.argv, launch.fds))
        launch.close()
    note = f"best of {times}: {min(sandboxed) * 1000:.1f} ms, plain {min(plain) * 1000:.1f} ms"
    return [Figure("sandbox.spawn_ratio", min(sandboxed) / min(plain), "×", note)]


def _time_spawn(argv: tuple[str, ...], fds: tuple[int, ...]) -> float:
    started_s = time.perf_counter()
    subprocess.run(argv, env={}, pass_fds=fds, check=True)
    return time.perf_counter() - started_s


async def _measure(home: Path, batches: int) -> list[Figure]:
    configure(home, "http://127.0.0.1:9/v1")
    async with open_app(private_env(home)) as app:
        numbers = count(1)
        for _ in range(WARM_UP):
            await _decide(app, next(numbers))
        paced = list[float]()
        for _ in range(batches):
            before_ms, clock = weather_ms(), CpuClock()
            for _ in range(FEW):
                await _decide(app, next(numbers))
            spent_ms, clock = clock.spent_s() * 1000, CpuClock()
            for _ in range(FEW):  # what a run commits anyway
                await _commit(app, next(numbers))
            spent_ms = (spent_ms - clock.spent_s() * 1000) / FEW
            paced.append(spent_ms / max(1.0, (before_ms + weather_ms()) / 2 / USUAL_MS))
        note = f"median of {batches} × {FEW} commands"
        return [Figure("tool.cpu_ms", median(paced), "CPU-ms", note, is_paced=True)]


async def _decide(app: App, number: int) -> None:
    agent, call = app.agent("main"), ToolCall(f"c{number}", "exec", {"command": COMMAND})
    agent.workspace.mkdir(parents=True, exist_ok=True)
    tool = app.tools("main").get("exec")
    ctx = ToolContext(KEY, "main", agent.workspace, call_id=call.id)
    audit = CallAudit(app.audit, HookContext("main", KEY, "run"), app.clock.now_ms)
    prepared = await prepare_call(tool, ctx, call, tool.parse(call.args))
    try:
        decision = decide_tool_call(prepared.facts, CALLER, agent.rules.for_chat(()))
        assert decision.layer in {"exec", "taint"}, decision
        audit.record_decision(call, "exec", decision, taint=CALLER.taint, facts=prepared.facts)
        result = ToolResult(call.id, "exec", (Text("done"),), details={"exitCode": 0})
        audit.record_execution(call, "exec", result, 5)
    finally:
        prepared.close()
    await _commit(app, number)


async def _commit(app: App, number: int) -> None:
    with app.audit.storing() as rows:
        async with app.store.transaction() as transaction:
            transaction.put_record("bench", "call", {"number": number})
            transaction.add_audit(*rows)
