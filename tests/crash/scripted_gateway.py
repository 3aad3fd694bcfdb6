"""The gateway with the scripted channel: the real program, connected to a ledger.

    python -m tests.crash.scripted_gateway --ledger http://127.0.0.1:P [--port P]

It is `homarus gateway` in every other respect: state directory, config, signals and output. A
person allows every approval at once, unless the file `approver` of the home has another decision,
or `wait` until it has one. A question gets the first choice, or the answer in that file. If there
is a file `steer`, its text steers the first sub-agent, once, and the file is removed.
"""

import argparse
import asyncio
import os
import sys
from pathlib import Path

from homarus.agent.approval_ports import ApproverIdentity
from homarus.app import App
from homarus.cli.gateway_options import restart_self, warn
from homarus.cli.main import fail
from homarus.core.errors import HomarusError
from homarus.policy.approvals import DECISIONS
from homarus.process import serve
from homarus.store.approvals import ApprovalRecord
from tests.crash.scripted_channel import make_channel

APPROVER_POLL_S = 0.02


class _ScriptedApprover:
    """A person who reads their decision from a file; without it, they allow everything."""

    identity = ApproverIdentity("a test")

    def is_reachable(self, record: ApprovalRecord) -> bool:
        return True

    async def ask(self, record: ApprovalRecord) -> str | None:
        while True:
            if record.is_question and (given := self._read()) != "wait":
                return record.choices[0] if given in DECISIONS else given
            for decision in DECISIONS:
                if decision == self._read() and not record.is_question:
                    return decision
            await asyncio.sleep(APPROVER_POLL_S)

    def _read(self) -> str:
        file = Path.home() / "approver"
        return file.read_text(encoding="utf-8").strip() if file.exists() else "allow-once"


async def _steer(app: App, file: Path) -> None:
    """Steer the first sub-agent whose model was asked."""
    while True:
        if found := await app.subagents().find_all(active_only=True):
            rows = await app.store.journal.inbox_records("running", session=found[0].child_key)
            if any(row.entry for row in rows):
                break
        await asyncio.sleep(APPROVER_POLL_S)
    text = file.read_text(encoding="utf-8")
    file.unlink()
    await app.subagents().steer(found[0].child_key, text)


def _add_people(app: App) -> None:
    app.approval_ports.register_approver(_ScriptedApprover())
    if (file := Path.home() / "steer").exists():
        app.spawn(_steer(app, file), "steer")


def main() -> None:
    """Serve until stopped."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.scripted_gateway")
    parser.add_argument("--ledger", required=True, metavar="URL", help="of the ledger")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    options = parser.parse_args()
    channel = make_channel(options.ledger)

    def ready(url: str) -> None:
        sys.stdout.write(f"The gateway is ready on {url} (process {os.getpid()}).\n")
        sys.stdout.flush()

    try:
        ending = asyncio.run(
            serve(
                os.environ,
                port=options.port,
                ready=ready,
                warn=warn,
                channels=lambda: (channel,),
                on_open=_add_people,
            )
        )
    except HomarusError as exc:
        fail(exc.message, fix=exc.fix, code=exc.code, status=exc.exit_status)
    if ending == "restart":
        restart_self()


if __name__ == "__main__":
    main()
