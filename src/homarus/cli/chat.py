"""`homarus chat`: talk with an agent in this terminal."""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from uuid import uuid4

import click

from homarus.app import App, open_app
from homarus.channels.terminal import Lines, View, colour_wanted
from homarus.core.bus import Subscription
from homarus.core.errors import HomarusError
from homarus.core.message import Address, Inbound
from homarus.core.tasks import task_group
from homarus.core.text import reveal
from homarus.tools.tool import Question, nobody

HELP = """\
/new            start afresh
/model [REF]    show or change the model of this conversation
/status         what answers, and how full its window is
/quit           leave (or Ctrl-D); Ctrl-C stops the answer, not the program"""


@click.command("chat")
@click.option("--agent", "agent_id", metavar="ID", help="The agent to talk with.")
@click.option("--session-key", metavar="KEY", help="The conversation to go on with.")
@click.option("--model", metavar="REF", help="Use this model for the conversation.")
def command(agent_id: str | None, session_key: str | None, model: str | None) -> None:
    """Talk with an agent in this terminal."""
    asyncio.run(_chat(agent_id, session_key, model))


async def _chat(agent_id: str | None, session_key: str | None, model: str | None) -> None:
    view = View(sys.stdout, colour=colour_wanted(sys.stdout))
    lines = Lines()

    async def ask(question: Question) -> bool:
        view.note(f"{question.title}\n{reveal(question.detail)}")
        answer = await lines.read("Allow? [y/N] ")
        return (answer or "").strip().lower() in {"y", "yes"}

    asker = ask if lines.interactive else nobody
    async with open_app(os.environ, ask=asker, warn=view.note) as app:
        key = app.key(session_key, agent_id)
        chat = Chat(app, key, view, lines)
        if model:
            await chat.model(model)
        with app.bus.subscribe(size=100_000) as events:
            async with task_group() as group:
                group.create_task(_show(events, view, key))
                await chat.run()
                events.close()


async def _show(events: Subscription, view: View, key: str) -> None:
    async for event in events:
        if event.session_key == key:
            view.show(event)


class Chat:
    """One conversation at the terminal."""

    def __init__(self, app: App, key: str, view: View, lines: Lines) -> None:
        self._app, self._key, self._view, self._lines = app, key, view, lines

    async def run(self) -> None:
        """Read, answer, repeat, until there is nothing more to read."""
        status = await self._app.status(self._key)
        self._view.note(f"{status.model} ({status.why}) · /help for commands")
        if status.note:
            self._view.note(status.note)
        loop = asyncio.get_running_loop()
        with suppress(NotImplementedError, RuntimeError):  # no signal handlers on this platform
            loop.add_signal_handler(signal.SIGINT, self._interrupt)
        while True:
            line = await self._lines.read("> ")
            if line is None or line.strip() in {"/quit", "/exit"}:
                return
            try:
                if line.strip():
                    await self._take(line.strip())
            except HomarusError as exc:  # a mistyped model is no reason to leave
                self._failed(exc)

    async def _take(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        match word:
            case "/help":
                self._view.note(HELP)
            case "/new" | "/reset":
                await (await self._app.session(self._key)).reset()
                self._view.note("A new conversation.")
                if rest.strip():
                    await self._say(rest.strip())
            case "/model":
                await self.model(rest.strip())
            case "/status":
                await self._status()
            case _:
                await self._say(line)

    async def model(self, ref: str) -> None:
        """Show the model, or change it for this conversation."""
        if ref:
            await self._app.set_model(self._key, ref)
        status = await self._app.status(self._key)
        self._view.note(f"model: {status.model} ({status.why})")

    async def _status(self) -> None:
        status = await self._app.status(self._key)
        full = f"{status.context_tokens:,} of {status.window:,} tokens"
        self._view.note(
            f"model      {status.model} ({status.why})\n"
            f"session    {status.key} · {status.messages} messages\n"
            f"context    {full}\n"
            f"workspace  {status.workspace}"
        )

    async def _say(self, text: str) -> None:
        address = Address(channel="terminal", chat="local")
        inbound = Inbound(uuid4().hex, address, "owner", text, at_ms=self._app.clock.now_ms())
        outcome = await self._app.ask(self._key, inbound)
        await asyncio.sleep(0)  # the view shows the run's last event before the next prompt
        if outcome.status == "aborted":
            self._view.note("stopped.")
        elif outcome.error:
            self._failed(outcome.error)
        elif not outcome.text.strip():
            self._view.note("(the model gave no answer)")

    def _failed(self, error: HomarusError) -> None:
        self._view.error(f"⚠ {error.message}")
        if error.fix:
            self._view.note(f"→ {error.fix}")

    def _interrupt(self) -> None:
        if not self._app.abort(self._key):
            self._view.note("Nothing is running; /quit or Ctrl-D leaves.")
