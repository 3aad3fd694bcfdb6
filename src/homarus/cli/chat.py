"""`homarus chat`: chat with an agent in this terminal."""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from homarus.cli.approval_prompt import ApprovalPrompt
from homarus.cli.command_group import examples
from homarus.cli.gateway_options import GatewayOptions, gateway_options
from homarus.cli.options import agent_option, model_option, session_option
from homarus.cli.session_client import SessionClient, open_session_client
from homarus.cli.terminal import LineReader, TerminalView, colour_possible, colour_wanted
from homarus.core.errors import HomarusError
from homarus.core.fast_dataclass import dataclass
from homarus.core.tasks import task_group

if TYPE_CHECKING:
    from homarus.cli.editor_view import EditorView
    from homarus.cli.line_editor import LineEditor

LEAVING = (
    "/quit: leave (or Ctrl-D). Ctrl-C clears the line and stops the answer, not the program.\n"
    "Alt-Enter starts a new line, Tab completes commands and files, Up shows earlier messages."
)
NOTHING_RUNS = "Nothing is running; /quit or Ctrl-D leaves."
_TICK_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """What the command line asks for."""

    agent_id: str | None
    session_key: str | None
    model: str | None
    gateway: GatewayOptions
    local: bool


@click.command("chat")
@examples("homarus chat", "homarus chat --agent work --model openai/gpt-5.2")
@agent_option("The agent to chat with.", "agent_id", default="the default agent")
@session_option("The session to continue.")
@model_option("The model of this session from now on.", default="the session's")
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
    options = ChatOptions(agent_id, session_key, model, gateway, local)
    has_editor = sys.stdin.isatty() and colour_possible(sys.stdout)
    asyncio.run(_edit_chat(options) if has_editor else _read_chat(options))


async def _read_chat(options: ChatOptions) -> None:
    """Chat line by line: from a pipe, or at a terminal that cannot move its cursor."""
    view = TerminalView(sys.stdout, colour=colour_wanted(sys.stdout))
    lines = LineReader()
    approvals = ApprovalPrompt(view, lines)
    opened = open_session_client(
        options.gateway,
        key=options.session_key,
        agent=options.agent_id,
        local=options.local,
        prompt=approvals if lines.interactive else None,
        show=view.show,
        warn=view.notice,
    )
    async with opened as session:
        chat = TerminalChat(session, view, approvals)
        await chat.start(options.model)
        while (line := await lines.read("> ")) is not None and not chat.is_leaving(line):
            await chat.answer(line)


async def _edit_chat(options: ChatOptions) -> None:
    """Chat at a terminal, with a line editor."""
    from homarus.agent.commands.listing import implemented_commands
    from homarus.cli.chat_history import ChatHistoryFile
    from homarus.cli.chat_words import complete
    from homarus.cli.editor_view import EditorView
    from homarus.cli.line_editor import LineEditor, without_echo
    from homarus.config.paths import Paths

    chat: EditorChat | None = None
    folders = [Path()]
    commands = implemented_commands()
    colour = colour_wanted(sys.stdout)
    editor = LineEditor(
        ChatHistoryFile(Paths.find(os.environ).state),
        lambda before: complete(before, commands, folders),
        colour=colour,
        on_submit=lambda text: chat.submit(text) if chat else None,
        on_interrupt=lambda had_text: chat.interrupt(had_text=had_text) if chat else None,
        get_above=lambda max_lines: view.get_above(max_lines),
    )
    view = EditorView(editor.print, editor.refresh, editor.get_columns, colour=colour)
    approvals = ApprovalPrompt(view, editor)
    opened = open_session_client(
        options.gateway,
        key=options.session_key,
        agent=options.agent_id,
        local=options.local,
        prompt=approvals,
        show=view.show,
        warn=view.notice,
    )
    with without_echo():
        async with opened as session:
            chat = EditorChat(session, view, approvals, editor)
            await chat.start(options.model)
            folders.insert(0, Path(chat.workspace))
            await chat.run()


class TerminalChat:
    """One session at the terminal."""

    def __init__(
        self, session: SessionClient, view: TerminalView, approvals: ApprovalPrompt
    ) -> None:
        self._session, self._view, self._approvals = session, view, approvals
        self._stopped = 0  # messages; it is said once, after the last of what was stopped
        self.workspace = ""

    async def start(self, model: str | None) -> None:
        """Set the model if one is wanted, and say which one answers."""
        if model:
            await self._session.set_model(model)
        status = await self._session.status()
        self.workspace = status.workspace
        self._view.notice(f"{status.model} ({status.reason}) · /help for commands")
        if status.note:
            self._view.notice(status.note)
        loop = asyncio.get_running_loop()
        with suppress(NotImplementedError, RuntimeError):  # no signal handlers on this platform
            loop.add_signal_handler(signal.SIGINT, self.interrupt)

    def is_leaving(self, line: str) -> bool:
        return line.strip() in {"/quit", "/exit"}

    async def answer(self, line: str) -> None:
        """Send a line, a message for the agent or a command, and wait; errors are printed."""
        try:
            if text := line.strip():
                await self._check_command(line)
                await self._send(text)
        except HomarusError as exc:  # a mistyped model does not end the chat
            self._failed(exc)
        if self._stopped and not self._has_others():
            more, self._stopped = self._stopped - 1, 0
            self._view.end_answer()
            self._view.notice(f"stopped, with {more} more sent." if more else "stopped.")

    def _has_others(self) -> bool:
        """Return whether further messages wait for their outcome."""
        return False

    async def _check_command(self, line: str) -> None:
        """Raise UserError for a command that does not exist."""
        if not line.startswith("/"):
            return
        from homarus.agent.commands.listing import implemented_commands
        from homarus.cli.chat_words import check_command

        commands = implemented_commands()
        try:
            check_command(line, commands, ())
        except HomarusError:
            check_command(line, commands, await self._session.find_shortcuts())

    async def _send(self, line: str) -> None:
        answer = await self._session.send(line)
        if answer.aborted:
            self._stopped += 1
            return
        if answer.is_merged:
            return
        self._view.end_answer()
        if not answer.text.strip():
            self._view.notice("(the model gave no answer)")
        elif usage := "" if line.startswith("/") else await self._session.find_usage():
            self._view.notice(usage)
        if line == "/help":
            self._view.notice(LEAVING)
        for failed in self._view.attempts if line == "/status" else ():
            self._view.notice(f"Failed: {failed.provider}/{failed.model}: {failed.error}")

    def _failed(self, error: HomarusError) -> None:
        self._view.error(f"⚠ {error.message}")
        if error.fix:
            self._view.notice(f"→ {error.fix}")

    def interrupt(self, *, had_text: bool = False) -> None:
        """Deny the open question and stop what runs; say how to leave where there is nothing."""
        self._approvals.cancel()
        if not self._session.abort() and not had_text:
            self._view.notice(NOTHING_RUNS)


class EditorChat(TerminalChat):
    """A session whose input line stays in use while answers are made."""

    def __init__(
        self,
        session: SessionClient,
        view: "EditorView",
        approvals: ApprovalPrompt,
        editor: "LineEditor",
    ) -> None:
        super().__init__(session, view, approvals)
        self._editor, self._editor_view = editor, view
        self._answers = set[asyncio.Task[None]]()
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Send what is submitted, until the person leaves."""
        async with task_group() as group:
            self._group = group
            await self._editor.run()
            for task in tuple(self._answers):
                task.cancel()

    def submit(self, text: str) -> None:
        """Send a message at once: during an answer, the session decides what it does to it."""
        if not text.strip():
            return
        self._editor_view.echo(text.strip("\n"))
        if self.is_leaving(text):
            self._editor.leave()
            return
        if self._group:
            if not self._answers:
                self._group.create_task(self._tick())
            task = self._group.create_task(self._answer_waiting(text))
            self._answers.add(task)
            task.add_done_callback(self._answers.discard)

    def _has_others(self) -> bool:
        return len(self._answers) > 1

    async def _answer_waiting(self, text: str) -> None:
        self._editor_view.start_waiting()
        try:
            await self.answer(text)
        finally:
            self._editor_view.stop_waiting()

    async def _tick(self) -> None:
        """Move the spinner until nothing is waited for."""
        while self._answers:
            self._editor.refresh()
            await asyncio.sleep(_TICK_S)
