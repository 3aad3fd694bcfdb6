"""`homarus chat`: chat with an agent in this terminal."""

import asyncio
import signal
import sys
from contextlib import suppress

import click

from homarus.cli.approval_prompt import ApprovalPrompt
from homarus.cli.gateway_options import GatewayOptions, gateway_options
from homarus.cli.session_client import SessionClient, open_session_client
from homarus.cli.terminal import LineReader, TerminalView, colour_wanted
from homarus.core.errors import HomarusError
from homarus.tools.tool import deny_approval

LEAVING = "/quit: leave (or Ctrl-D). Ctrl-C stops the answer, not the program."


@click.command("chat")
@click.option("--agent", "agent_id", metavar="ID", help="The agent to talk with.")
@click.option("--session-key", metavar="KEY", help="The conversation to go on with.")
@click.option("--model", metavar="REF", help="Use this model for the conversation.")
@click.option("--local", is_flag=True, help="Run in this process, without a gateway.")
@gateway_options
def command(
    agent_id: str | None,
    session_key: str | None,
    model: str | None,
    gateway: GatewayOptions,
    *,
    local: bool,
) -> None:
    """Chat with an agent in this terminal."""
    asyncio.run(_chat(agent_id, session_key, model, gateway, local=local))


async def _chat(
    agent_id: str | None,
    session_key: str | None,
    model: str | None,
    gateway: GatewayOptions,
    *,
    local: bool,
) -> None:
    view = TerminalView(sys.stdout, colour=colour_wanted(sys.stdout))
    lines = LineReader()

    approvals = ApprovalPrompt(view, lines)
    opened = open_session_client(
        gateway,
        key=session_key,
        agent=agent_id,
        local=local,
        request_approval=approvals.ask if lines.interactive else deny_approval,
        show=view.show,
        warn=view.notice,
    )
    async with opened as session:
        chat = TerminalChat(session, view, lines, approvals)
        if model:
            await chat.model(model)
        await chat.run()


class TerminalChat:
    """One session at the terminal."""

    def __init__(
        self,
        session: SessionClient,
        view: TerminalView,
        lines: LineReader,
        approvals: ApprovalPrompt,
    ) -> None:
        self._session, self._view, self._lines = session, view, lines
        self._approvals = approvals

    async def run(self) -> None:
        """Read a line, answer it, and repeat until the input ends."""
        status = await self._session.status()
        self._view.notice(f"{status.model} ({status.reason}) · /help for commands")
        if status.note:
            self._view.notice(status.note)
        loop = asyncio.get_running_loop()
        with suppress(NotImplementedError, RuntimeError):  # no signal handlers on this platform
            loop.add_signal_handler(signal.SIGINT, self._interrupt)
        while True:
            line = await self._lines.read("> ")
            if line is None or line.strip() in {"/quit", "/exit"}:
                return
            try:
                if line.strip():
                    await self._send(line.strip())
            except HomarusError as exc:  # a mistyped model does not end the chat
                self._failed(exc)

    async def _send(self, line: str) -> None:
        """Send a line: a message for the agent, or a command."""
        answer = await self._session.send(line)
        if answer.aborted:
            self._view.notice("stopped.")
        elif not answer.text.strip():
            self._view.notice("(the model gave no answer)")
        if line == "/help":
            self._view.notice(LEAVING)
        for failed in self._view.attempts if line == "/status" else ():
            self._view.notice(f"Failed: {failed.provider}/{failed.model}: {failed.error}")

    async def model(self, ref: str) -> None:
        """Set the model of this session."""
        await self._session.set_model(ref)

    def _failed(self, error: HomarusError) -> None:
        self._view.error(f"⚠ {error.message}")
        if error.fix:
            self._view.notice(f"→ {error.fix}")

    def _interrupt(self) -> None:
        self._approvals.cancel()
        if not self._session.abort():
            self._view.notice("Nothing is running; /quit or Ctrl-D leaves.")
