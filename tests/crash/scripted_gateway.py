"""The gateway with the scripted channel: the real program, connected to a ledger.

    python -m tests.crash.scripted_gateway --ledger http://127.0.0.1:P [--port P]

It is `homarus gateway` in every other respect: state directory, config, signals and output. No
person can answer in a test, so every approval request is granted.
"""

import argparse
import asyncio
import os
import sys

from homarus.agent.approval_ports import ApproverIdentity
from homarus.app import App
from homarus.cli.gateway_options import restart_self, warn
from homarus.cli.main import fail
from homarus.core.errors import HomarusError
from homarus.policy.approvals import ApprovalDecision
from homarus.process import serve
from homarus.store.approvals import ApprovalRecord
from tests.crash.scripted_channel import make_channel


class _AgreeingApprover:
    """A person who allows everything at once."""

    identity = ApproverIdentity("a test")

    def is_reachable(self, record: ApprovalRecord) -> bool:
        return True

    async def ask(self, record: ApprovalRecord) -> ApprovalDecision | None:
        return "allow-once"


def _add_approver(app: App) -> None:
    app.approval_ports.register_approver(_AgreeingApprover())


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
                on_open=_add_approver,
            )
        )
    except HomarusError as exc:
        fail(exc.message, fix=exc.fix, code=exc.code, status=exc.exit_status)
    if ending == "restart":
        restart_self()


if __name__ == "__main__":
    main()
