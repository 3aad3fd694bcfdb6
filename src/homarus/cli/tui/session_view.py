"""The session that is open, and those that can be: between the gateway's methods and the screen."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, Protocol, TypeAlias

from homarus.cli.tui.blocks import AnswerBlock, ThinkingBlock
from homarus.cli.tui.command import TuiOptions
from homarus.cli.tui.command_list import ListedCommand, parse_commands
from homarus.cli.tui.conversation import OpenConversation
from homarus.cli.tui.link import GatewayLink
from homarus.cli.tui.outbox import Outbox, OutgoingFile
from homarus.cli.tui.payload import (
    read_amount,
    read_count,
    read_fields,
    read_items,
    read_rows,
    read_word,
)
from homarus.cli.tui.pending_questions import PendingQuestions
from homarus.cli.tui.picker import PickItem, filter_items
from homarus.core.errors import HomarusError
from homarus.core.message import Json
from homarus.core.session_keys import agent_id_of, global_key

NEW: Final = "new"
_LEVELS: Final = ("off", "minimal", "low", "medium", "high", "xhigh")
_REFRESH_S: Final = 0.25
_RESEND_S: Final = 3.0
_SESSIONS: Final = 200
_DAYS: Final = 3_600 * 86_400.0  # that the gateway sums up

Severity: TypeAlias = Literal["information", "warning", "error"]


class ShowNotice(Protocol):
    """Show a line of the program."""

    def __call__(self, text: str, severity: Severity = "information") -> None: ...


class SessionView:
    """What the screen shows, and what its keys change. `on_change` has it drawn again."""

    def __init__(
        self,
        link: GatewayLink,
        options: TuiOptions,
        on_change: Callable[[], None],
        say: ShowNotice,
    ) -> None:
        self._link, self._options = link, options
        self._on_change, self._say = on_change, say
        self.outbox = Outbox(link.call, lambda _key: on_change())
        self.pending = PendingQuestions(link.call)
        self.conversation = self._make_conversation(options.session_key or "main")
        self.commands: list[ListedCommand] = parse_commands(None)
        self.files: list[OutgoingFile] = []
        self.is_open = False
        self.spent_tokens = 0
        self.spent_usd: float | None = None
        self._agents: Mapping[str, str] = {}  # id → name
        self._default_agent = "main"
        self._is_refresh_planned = False
        self._is_message_sent = False
        if options.is_delivering:
            self.outbox.extra["deliver"] = True
        if options.thinking:
            self.outbox.extra["thinking"] = options.thinking
        if options.timeout_s:
            self.outbox.extra["timeoutMs"] = round(options.timeout_s * 1000)

    @property
    def agent_name(self) -> str:
        """The name of the agent of the open session."""
        agent = agent_id_of(self.conversation.key)
        return self._agents.get(agent) or agent or "main"

    @property
    def session_name(self) -> str:
        """How the open session is called: its label, else what follows the agent in its key."""
        row, key = self.conversation.row, self.conversation.key
        label = read_word(row.get("label")) or read_word(row.get("subject"))
        return label or key.removeprefix(f"agent:{agent_id_of(key)}:")

    def describe_waiting(self) -> str:
        """Return what is waited for in this session; empty when nothing runs."""
        conversation = self.conversation
        run = conversation.active_run
        sent = self.outbox.of_session(conversation.key)
        if run is None:
            is_sending = any(each.state in {"sending", "sent"} for each in sent)
            return "waiting for the model" if is_sending or conversation.is_busy else ""
        tools = [each for each in run.tools.values() if each.is_running]
        if tools:
            is_waiting = any(each.call_id in conversation.waiting_calls for each in tools)
            return "waiting for your answer" if is_waiting else f"running {tools[-1].name}"
        last = run.blocks[-1] if run.blocks else None
        if isinstance(last, AnswerBlock):
            return "answering"
        return "thinking" if isinstance(last, ThinkingBlock) else "waiting for the model"

    # Opening

    async def open(self, hello: Mapping[str, Json]) -> None:
        """Load what is shown, after every connection."""
        try:
            if not self.is_open:
                self._open_first(hello)
            await self.conversation.load()
            await self._load_defaults()
            self.is_open = True
            self._on_change()
            await self._link.call("sessions.subscribe", {})
            await self.pending.load()
            self.update_waiting()
            await self._load_agents()
            if self._options.message and not self._is_message_sent:
                self._is_message_sent = True
                self.outbox.add(self.conversation.key, self._options.message, ())
            await self.outbox.send_waiting()
            await self._load_commands()
            await self.load_spent()
        except HomarusError as exc:
            self._say(str(exc), "error")
        self._on_change()

    def _open_first(self, hello: Mapping[str, Json]) -> None:
        """Choose the session that the command line asks for."""
        found = read_fields(read_fields(hello.get("snapshot")).get("sessionDefaults"))
        self._default_agent = read_word(found.get("defaultAgentId")) or "main"
        key, agent = self._options.session_key, self._options.agent_id
        if key is None and agent is None:
            name = read_word(found.get("mainSessionKey")) or "main"
        elif agent and key in {None, "main"} and found.get("scope") == "global":
            name = global_key(agent)
        elif agent and not (key or "").startswith("agent:"):
            name = f"agent:{agent}:{key or 'main'}"
        else:
            name = key or "main"
        self._use(name)

    async def switch(self, key: str) -> None:
        """Open another session."""
        self._use(key)
        self.is_open = True
        self.spent_tokens, self.spent_usd = 0, None
        self._on_change()
        await self.conversation.load()
        await self._load_defaults()
        self.update_waiting()
        await self._load_commands()
        await self.load_spent()
        self._on_change()

    def _use(self, key: str) -> None:
        self.conversation = self._make_conversation(key)

    def _make_conversation(self, key: str) -> OpenConversation:
        made = OpenConversation(key, self._link.call, self.outbox, self._on_change)
        made.page_size = self._options.history_limit
        return made

    async def _load_defaults(self) -> None:
        """Show the model that a session will have which has no row yet."""
        if not self.conversation.row:
            defaults = (await self._call("sessions.list", {"limit": 1})).get("defaults")
            if isinstance(defaults, dict):
                self.conversation.row = defaults

    async def _load_agents(self) -> None:
        listed = await self._call("agents.list", {})
        rows = [each for each in read_rows(listed.get("agents")) if read_word(each.get("id"))]
        self._default_agent = read_word(listed.get("defaultId")) or self._default_agent
        self._agents = {read_word(each.get("id")): _agent_name(each) for each in rows}

    async def _load_commands(self) -> None:
        params = {"sessionKey": self.conversation.key}
        self.commands = parse_commands(await self._link.call("commands.list", params))

    async def load_spent(self) -> None:
        """Load what the session has cost; a client without the scope does not see it."""
        conversation = self.conversation
        start = time.strftime("%Y-%m-%d", time.gmtime(max(0.0, time.time() - _DAYS)))
        params: dict[str, Json] = {"key": conversation.key, "startDate": start, "limit": 1}
        try:
            found = await self._call("sessions.usage", params)
        except HomarusError:
            return
        rows = read_rows(found.get("sessions"))
        usage = rows[0].get("usage") if rows else None
        if isinstance(usage, dict) and conversation is self.conversation:
            self.spent_tokens = read_count(usage.get("totalTokens"))
            cost = max(0.0, read_amount(usage.get("totalCost")))
            # A model without a known price costs an unknown amount, not nothing.
            is_known = self.spent_tokens > 0 and not usage.get("missingCostEntries")
            self.spent_usd = cost if cost or is_known else None
            self._on_change()

    # Events

    def on_event(self, name: str, payload: Json, group: asyncio.TaskGroup) -> None:
        """Handle an event of the gateway; what it makes necessary runs in the group."""
        if name == "gap":
            group.create_task(self._refresh(0.0))
            return
        note = self.pending.on_event(name, payload)
        if note is not None:
            self.update_waiting()
            if note:
                self._say(note)
            self._on_change()
        if isinstance(payload, dict) and self.conversation.on_event(name, payload):
            self._refresh_soon(group)

    def on_disconnected(self) -> None:
        self.outbox.on_disconnected()
        self.conversation.on_disconnected()

    def update_waiting(self) -> None:
        """Mark the tool calls that wait for an answer."""
        self.conversation.waiting_calls = self.pending.waiting_calls()

    def _refresh_soon(self, group: asyncio.TaskGroup) -> None:
        if not self._is_refresh_planned:
            self._is_refresh_planned = True
            group.create_task(self._refresh(_REFRESH_S))

    async def _refresh(self, wait_s: float) -> None:
        await asyncio.sleep(wait_s)
        self._is_refresh_planned = False
        await self.conversation.load()
        if not self.conversation.is_busy:
            await self.load_spent()

    # Sending

    async def check_command(self, text: str) -> None:
        """Raise UserError for a command that does not exist."""
        if text.startswith("/"):
            from homarus.agent.commands.listing import implemented_commands
            from homarus.cli.chat_words import check_command

            known = [name for each in self.commands for name in (each.name, *each.aliases)]
            check_command(text, implemented_commands(), known)

    async def send(self, text: str) -> None:
        """Send a message with the files that wait; while disconnected, it waits for the gateway."""
        files, self.files = tuple(self.files), []
        self.outbox.add(self.conversation.key, text, files)
        while self._link.is_connected:
            await self.outbox.send_waiting()
            if not any(each.state == "waiting" for each in self.outbox.messages):
                break
            await asyncio.sleep(_RESEND_S)
        self._on_change()

    async def abort(self) -> bool:
        """Stop what runs in the session; return whether there was something."""
        conversation = self.conversation
        if not self.describe_waiting() and not conversation.row.get("queueDepth"):
            return False
        try:
            result = await self._call("chat.abort", {"sessionKey": conversation.key})
        except HomarusError as exc:
            self._say(str(exc), "error")
            return True
        conversation.end_runs(list(map(read_word, read_items(result.get("runIds")))))
        return True

    # Picking

    async def load_sessions(self, text: str) -> Sequence[PickItem]:
        """Return the sessions with this text, and a new one.

        The gateway searches keys and labels of any age; titles are searched among the newest.
        """
        rows = await self._list_sessions("")
        made = PickItem(NEW, "+ New session", f"of {self.agent_name}")
        found = filter_items([*map(self._session_item, rows), made], text)
        if text.strip():
            known = {each.value for each in found}
            others = map(self._session_item, await self._list_sessions(text.strip()[:200]))
            found += [each for each in others if each.value not in known]
        return found

    async def _list_sessions(self, text: str) -> list[Mapping[str, Json]]:
        params: dict[str, Json] = {
            "limit": _SESSIONS,
            "includeGlobal": True,
            "includeDerivedTitles": True,
            **({"search": text} if text else {}),
        }
        found = await self._call("sessions.list", params)
        return [each for each in read_rows(found.get("sessions")) if read_word(each.get("key"))]

    def _session_item(self, row: Mapping[str, Json]) -> PickItem:
        key = read_word(row.get("key"))
        names = (read_word(row.get(each)) for each in ("label", "derivedTitle", "displayName"))
        title = next(filter(None, names), "")
        short = key.removeprefix("agent:")
        name = f"{title} · {short}" if title and title != key else short
        age_s = max(0.0, time.time() - read_count(row.get("updatedAt")) / 1000)
        note = "running" if row.get("hasActiveRun") else _age(age_s)
        if key in self.pending.sessions():
            note = "approval waits"
        return PickItem(key, name, note, key == self.conversation.key)

    async def pick_session(self, value: str) -> None:
        key = value
        if value == NEW:
            agent = agent_id_of(self.conversation.key)
            made = await self._call("sessions.create", {"agentId": agent})
            key = read_word(made.get("key")) or self.conversation.key
        await self.switch(key)

    async def load_agents(self, text: str) -> Sequence[PickItem]:
        await self._load_agents()
        current = agent_id_of(self.conversation.key)
        items = [
            PickItem(each, name, each if each != name else "", each == current)
            for each, name in self._agents.items()
        ]
        return filter_items(items, text)

    async def pick_agent(self, value: str) -> None:
        """Open the main session of an agent."""
        await self.switch(f"agent:{value}:main")

    async def load_models(self, text: str) -> Sequence[PickItem]:
        listed = await self._call("models.list", {"view": "default"})
        row = self.conversation.row
        current = f"{row.get('modelProvider')}/{row.get('model')}"
        rows = read_rows(listed.get("models"))
        items = [_model_item(each, current) for each in rows if read_word(each.get("id"))]
        return filter_items(items, text)

    async def pick_model(self, value: str) -> None:
        await self._patch({"model": value})

    async def load_levels(self, text: str) -> Sequence[PickItem]:
        current = self.conversation.thinking
        return filter_items([PickItem(each, each, "", each == current) for each in _LEVELS], text)

    async def pick_level(self, value: str) -> None:
        await self._patch({"thinkingLevel": value})

    async def _patch(self, fields: Mapping[str, Json]) -> None:
        await self._link.call("sessions.patch", {"key": self.conversation.key, **fields})
        await self.conversation.load()

    async def _call(self, method: str, params: Mapping[str, Json]) -> dict[str, Json]:
        found = await self._link.call(method, params)
        return found if isinstance(found, dict) else {}


def _agent_name(row: Mapping[str, Json]) -> str:
    identity = read_fields(row.get("identity"))
    names = (row.get("name"), identity.get("name"), row.get("id"))
    return next(filter(None, map(read_word, names)), "")


def _age(seconds: float) -> str:
    """Format how long ago something was, for people."""
    if seconds < 3_600:
        return f"{int(seconds) // 60} min ago" if seconds >= 60 else "now"
    return (
        f"{int(seconds) // 3_600} h ago" if seconds < 172_800 else f"{int(seconds) // 86_400} days"
    )


def _model_item(row: Mapping[str, Json], current: str) -> PickItem:
    ref = f"{row.get('provider')}/{row.get('id')}"
    window = read_count(row.get("contextWindow"))
    size = f"{window / 1000:.0f}k" if window else ""
    return PickItem(ref, ref, size, ref == current)
