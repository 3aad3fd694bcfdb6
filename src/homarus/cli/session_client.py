"""Use one session from a terminal command: through a running gateway, else in this process.

Both clients show the same events while an answer is made.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import field, replace
from math import ceil
from typing import TYPE_CHECKING, Final, Protocol
from uuid import uuid4

from homarus.cli.gateway_options import (
    GatewayOptions,
    is_gateway_running,
    list_pending,
    open_gateway,
)
from homarus.config.model_refs import aliases
from homarus.config.schema import Config
from homarus.core.bus import Subscription
from homarus.core.clock import Clock
from homarus.core.errors import HomarusError, UnavailableError, UserError
from homarus.core.event import (
    CommandAnswered,
    ErrorNoted,
    Event,
    EventData,
    RunEnded,
    TextAdded,
    ToolEnded,
    ToolStarted,
)
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import (
    Address,
    Authority,
    Inbound,
    Json,
    RunOptions,
    Text,
    ToolCall,
    ToolResult,
    Usage,
)
from homarus.core.session_keys import global_key
from homarus.core.tasks import task_group
from homarus.gateway.device_records import describe_pending
from homarus.policy.approvals import APPROVER_CAPABILITY
from homarus.process import open_app
from homarus.providers.model_router import ModelRouter
from homarus.sessions.control import SessionControl, SessionStatus
from homarus.sessions.levels import think_level, usage_display
from homarus.sessions.stop_text import describe_stop
from homarus.store.usage import decode_usage

if TYPE_CHECKING:
    from homarus.agent.run import RunOutcome
    from homarus.cli.approval_prompt import ApprovalPrompt
    from homarus.cli.gateway_approver import GatewayApprover
    from homarus.gateway.client import GatewayClient
    from homarus.store.journal import InboxRecord

ShowEvent = Callable[[Event], None]
_RUN_TIMEOUT_S = 7 * 86_400.0  # runs have their own deadline
_DISPLAY_TIMEOUT_S = 1.0
_REASON_TIMEOUT_S, _REASON_POLL_S = 0.5, 0.05
_REASON_LIMIT = 20  # results of calls that ran at the same time
_CLOSED_EARLY = "the gateway closed the connection before the answer came"
_TRIES_AGAIN = "the next message tries again"

NO_OPTIONS: Final = RunOptions()
NOWHERE: Final[Mapping[str, Json]] = {}


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """The outcome of a message; `payload` is the result of the `agent` method.

    `is_merged`: the run of another message answered this one too, and reports how it went.
    """

    text: str
    aborted: bool = False
    is_merged: bool = False
    payload: Mapping[str, Json] = field(default_factory=dict)


class SessionClient(Protocol):
    """One session, in this process or behind a gateway."""

    async def run(
        self, text: str, options: RunOptions = NO_OPTIONS, delivery: Mapping[str, Json] = NOWHERE
    ) -> ChatAnswer:
        """Run the agent on a message and wait; raises the error of a failed run.

        `delivery` are the params of the `agent` method that name a chat for the answer.
        """
        ...

    async def send(self, text: str) -> ChatAnswer:
        """Send a line of a chat, which may be a command or have directives, and wait."""
        ...

    async def status(self) -> SessionStatus: ...

    async def set_model(self, ref: str) -> None: ...

    def abort(self) -> bool:
        """Stop the active run; return whether there was one."""
        ...

    async def find_usage(self) -> str:
        """Return the usage line of the last answer; "" unless `/usage` asks for it."""
        ...

    async def find_shortcuts(self) -> frozenset[str]:
        """Return the words after a slash that are no commands: aliases, triggers, skills."""
        ...


@asynccontextmanager
async def open_session_client(
    gateway: GatewayOptions,
    *,
    key: str | None = None,
    agent: str | None = None,
    local: bool = False,
    prompt: "ApprovalPrompt | None" = None,
    show: ShowEvent = lambda _event: None,
    warn: Callable[[str], None] = lambda _text: None,
) -> AsyncIterator[SessionClient]:
    """Open a session; `local` does not use a gateway, even when one runs.

    `prompt` asks the person at this terminal about tool calls; without it, there is no such person.
    """
    if local or not is_gateway_running(gateway):
        async with open_app(os.environ, warn=warn) as app:
            if prompt:
                from homarus.cli.approval_prompt import TerminalApprover

                app.approval_ports.register_approver(TerminalApprover(prompt))
            session_key = app.control.resolve_key(key, agent)
            session = LocalSessionClient(
                app.control, app.models, app.clock, session_key, lambda: app.loaded.config,
                lambda: [each.name for each in app.skill_ports.commands(session_key)],
            )  # fmt: skip
            with app.bus.subscribe(size=100_000) as events:
                async with task_group() as group:
                    group.create_task(session.show(events, show))
                    yield session
                    with suppress(UnavailableError):  # it is stopped with the process
                        await app.control.stop_and_wait(session_key)
                        await app.control.stop_children(session_key)
                    events.close()
        return
    caps = ("tool-events", APPROVER_CAPABILITY) if prompt else ("tool-events",)
    async with open_gateway(gateway, caps=caps) as client, task_group() as group:
        for entry in await list_pending(client):
            warn(describe_pending(entry))
        session_key = await _resolve_key(client, key, agent)
        remote = GatewaySessionClient(
            client, group, session_key, lambda: _reopen_gateway(gateway, caps)
        )
        if prompt:
            remote.add_approver(prompt, warn)
        display = group.create_task(remote.show(show))
        yield remote
        display.cancel()
        remote.close()


@asynccontextmanager
async def _reopen_gateway(
    gateway: GatewayOptions, caps: tuple[str, ...]
) -> AsyncIterator["GatewayClient"]:
    """Connect to a gateway that closed the connection; the error says that it is not back."""
    if not is_gateway_running(gateway):
        fix = f"homarus gateway run starts it; {_TRIES_AGAIN}"
        raise UnavailableError("the gateway stopped and is not back", fix=fix)
    opened = False
    try:
        async with open_gateway(gateway, caps=caps) as client:
            opened = True
            yield client
    except UnavailableError as exc:
        if opened:
            raise
        fix = f"{exc.fix}; {_TRIES_AGAIN}" if exc.fix else _TRIES_AGAIN
        raise UnavailableError(f"the gateway is not back: {exc.message}", fix=fix) from exc


class LocalSessionClient:
    """A session in this process."""

    def __init__(
        self,
        control: "SessionControl[RunOutcome]",
        models: ModelRouter,
        clock: Clock,
        key: str,
        get_config: Callable[[], Config] = Config,
        find_skills: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self._control, self._models, self._clock, self._key = control, models, clock, key
        self._get_config, self._find_skills = get_config, find_skills
        self._accepting = self._aborts = 0  # messages that are being saved; calls of abort

    async def run(
        self, text: str, options: RunOptions = NO_OPTIONS, delivery: Mapping[str, Json] = NOWHERE
    ) -> ChatAnswer:
        if options.thinking and (level := think_level(options.thinking)):  # for the session
            await (await self._control.load(self._key)).update(thinkingLevel=level)
        if options.model:
            options = replace(options, model=self._models.check_typed(options.model).ref)
        return await self._call(text, options, "")

    async def send(self, text: str) -> ChatAnswer:
        return await self._call(text, RunOptions(), "owner")

    async def _call(self, text: str, options: RunOptions, authority: Authority) -> ChatAnswer:
        inbound = Inbound(
            uuid4().hex,
            Address(channel="cli", chat="local"),
            "owner",
            text,
            at_ms=self._clock.now_ms(),
            options=options,
            authority=authority,
        )
        try:
            record, is_stopped = await self._accept(inbound)
            submitted = self._control.submit(self._key, record)
            if is_stopped:
                await self._control.stop(self._key, record.id)
            outcome = await submitted
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return ChatAnswer("", aborted=True)  # it was queued, and the queue was stopped
        await asyncio.sleep(0)  # so that the run's last event is shown before the answer
        is_merged = outcome.run_id != record.id
        from homarus.agent.reply.payloads import encode_result

        is_aborted, payload = outcome.status == "aborted", encode_result(outcome.run_id, outcome)
        if outcome.error and not is_merged:
            outcome.error.payload = payload
            raise outcome.error
        meta = payload["result"]["meta"]
        meta["agentMeta"]["sessionKey"] = outcome.session_key
        meta.setdefault("attempts", [])
        return ChatAnswer(outcome.text, is_aborted, is_merged, payload)

    async def _accept(self, inbound: Inbound) -> "tuple[InboxRecord, bool]":
        """Save a message; return also whether everything was stopped meanwhile."""
        aborts = self._aborts
        self._accepting += 1
        try:
            accepted = await self._control.accept(self._key, inbound)
        finally:
            self._accepting -= 1
        return accepted.record, self._aborts != aborts

    async def status(self) -> SessionStatus:
        return await self._control.status(self._key)

    async def set_model(self, ref: str) -> None:
        model = self._models.check_typed(ref)
        await (await self._control.load(self._key)).set_model(model.provider, model.id)

    def abort(self) -> bool:
        self._aborts += 1
        return bool(self._control.stop_now(self._key)) or self._accepting > 0

    async def find_usage(self) -> str:
        session = await self._control.load(self._key)
        spent = Usage()
        for message in reversed(session.messages):
            if message.role == "user":
                break
            spent += message.origin.usage if message.origin else Usage()
        return _usage_line(session.record.data.get("responseUsage"), spent, self._key)

    async def find_shortcuts(self) -> frozenset[str]:
        return _shortcuts(self._get_config()) | frozenset(self._find_skills())

    async def show(self, events: Subscription, show: ShowEvent) -> None:
        async for event in events:
            if event.session_key == self._key:
                show(event)


@dataclass(slots=True)
class _FollowedRun:
    """A message that was sent to a gateway and has no outcome yet."""

    answer: "asyncio.Future[ChatAnswer]"
    shown: asyncio.Event = field(default_factory=asyncio.Event)  # its last event was shown
    has_events: bool = False


class GatewaySessionClient:
    """A session behind a gateway, on this machine or another.

    After the gateway closed the connection, the next request opens another with `reopen`. A request
    that was sent on the old connection fails and is not sent again: it may have arrived.
    """

    def __init__(
        self,
        client: "GatewayClient",
        group: asyncio.TaskGroup,
        key: str,
        reopen: "Callable[[], AbstractAsyncContextManager[GatewayClient]] | None" = None,
    ) -> None:
        self._client, self._key, self._reopen = client, key, reopen
        self._is_closed = False  # by the gateway
        self._reopening = asyncio.Lock()
        self._next: asyncio.Task[None] | None = None  # shows the events of a later connection
        self._group: asyncio.TaskGroup = group
        self._view: ShowEvent = lambda _event: None
        self._runs: dict[str, _FollowedRun] = {}
        self._usage_display: Json = None  # what `/usage` chose, while it is known
        self._knows_usage = False
        self._spent: Usage | None = None  # by the session, up to its last answer
        self._approver: GatewayApprover | None = None

    def add_approver(self, prompt: "ApprovalPrompt", notify: Callable[[str], None]) -> None:
        """Have the person at this terminal asked about the tool calls of the session."""
        from homarus.cli.gateway_approver import GatewayApprover

        self._approver = GatewayApprover(prompt, self._key, self._group, self._request, notify)

    def close(self) -> None:
        """Close a connection that was opened later than the first."""
        if self._approver:
            self._approver.close()
        if self._next:
            self._next.cancel()

    async def _connect(self) -> "GatewayClient":
        """Return the connection, a new one if the gateway closed the last."""
        async with self._reopening:
            if self._is_closed and self._reopen:
                opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._next = self._group.create_task(self._serve(self._reopen(), opened))
                await opened
        return self._client

    async def _serve(
        self,
        connection: "AbstractAsyncContextManager[GatewayClient]",
        opened: "asyncio.Future[None]",
    ) -> None:
        """Open a connection and show its events until it ends."""
        try:
            async with connection as self._client:
                self._is_closed = False
                if not opened.done():  # else the request was cancelled
                    opened.set_result(None)
                await self.show(self._view)
        except HomarusError as exc:
            self._is_closed = True
            if not opened.done():
                opened.set_exception(exc)

    @contextmanager
    def _follow(self) -> Iterator[tuple[str, _FollowedRun]]:
        run_id = str(uuid4())
        run = _FollowedRun(asyncio.get_running_loop().create_future())
        self._runs[run_id] = run
        try:
            yield run_id, run
        finally:
            del self._runs[run_id]

    async def run(
        self, text: str, options: RunOptions = NO_OPTIONS, delivery: Mapping[str, Json] = NOWHERE
    ) -> ChatAnswer:
        client = await self._connect()
        with self._follow() as (run_id, run):
            params: dict[str, Json] = {
                "message": text,
                "sessionKey": self._key,
                "idempotencyKey": run_id,
                **delivery,
                **({"model": options.model} if options.model else {}),
                **({"thinking": options.thinking} if options.thinking else {}),
                **({"timeout": ceil(options.timeout_s)} if options.timeout_s else {}),  # integer
            }
            try:
                call = client.call("agent", params, final=True, timeout_s=_RUN_TIMEOUT_S)
                found = await call
            finally:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_DISPLAY_TIMEOUT_S):
                        await run.shown.wait()
        response = found if isinstance(found, dict) else {}
        result = response.get("result") or {}
        result.setdefault("meta", {}).setdefault("attempts", [])
        payloads = result.get("payloads") or ()
        if isinstance(error := result["meta"].get("error"), dict):
            failure = UnavailableError(str(error.get("message") or "the run failed"))
            failure.payload = response
            raise failure
        text = "\n".join(str(payload.get("text") or "") for payload in payloads)
        return ChatAnswer(text, bool((result.get("meta") or {}).get("aborted")), payload=response)

    async def send(self, text: str) -> ChatAnswer:
        if text.startswith("/"):
            self._knows_usage = False
        else:
            await self._start_usage()
        client = await self._connect()
        with self._follow() as (run_id, run):
            params = {"sessionKey": self._key, "message": text, "idempotencyKey": run_id}
            status = await client.call("chat.send", params)
            if isinstance(status, dict) and "aborted" in status:  # a stop request gets no run
                killed = int(status.get("subagentsStopped") or 0)
                reply = describe_stop(int(bool(status["aborted"])), killed)
                self._show_reply(run_id, reply)
                return ChatAnswer(reply)
            return await run.answer

    async def status(self) -> SessionStatus:
        listed = await self._call("sessions.list", {"search": self._key, "includeGlobal": True})
        rows = [row for row in listed["sessions"] if row["key"] == self._key]
        row = {**listed["defaults"], **(rows[0] if rows else {})}
        history = await self._call("chat.history", {"sessionKey": self._key, "limit": 1000})
        agent = self._key.split(":")[1] if self._key.startswith("agent:") else "main"
        files = await self._call("agents.files.list", {"agentId": agent})
        return SessionStatus(
            key=self._key,
            agent=agent,
            model=f"{row.get('modelProvider')}/{row.get('model')}",
            reason="by the gateway",
            note="",
            session_id=str(row.get("sessionId") or ""),
            messages=len(history["messages"]),
            context_tokens=int(row.get("totalTokens") or 0),
            window=int(row.get("contextTokens") or 0),
            workspace=str(files["workspace"]),
        )

    async def set_model(self, ref: str) -> None:
        await self._call("sessions.patch", {"key": self._key, "model": ref})

    def abort(self) -> bool:
        for run_id in reversed(self._runs):  # those that are queued first
            self._group.create_task(self._stop({"sessionKey": self._key, "runId": run_id}))
        return bool(self._runs)

    async def find_usage(self) -> str:
        before, self._spent = self._spent, None
        if before is None:
            return ""
        self._spent = await self._total_usage()
        if self._spent is None or self._spent.total < before.total:  # unknown, or a new session
            return ""
        return _usage_line(self._usage_display, _difference(self._spent, before), self._key)

    async def _start_usage(self) -> None:
        """Before a message is sent: learn whether usage is shown, and what was spent so far."""
        if not self._knows_usage:
            listed = await self._call("sessions.list", {"search": self._key, "includeGlobal": True})
            rows = [row for row in listed["sessions"] if row["key"] == self._key]
            self._usage_display = rows[0].get("responseUsage") if rows else None
            self._knows_usage, self._spent = True, None
        if self._spent is None and usage_display(str(self._usage_display)) not in {None, "off"}:
            self._spent = await self._total_usage()

    async def _total_usage(self) -> Usage | None:
        """Return what the session has spent; None where this client cannot know it."""
        try:
            totals = (await self._call("sessions.usage", {"key": self._key}))["totals"]
        except HomarusError:
            return None
        return decode_usage({**totals, "cost": {"total": totals.get("totalCost")}})

    async def find_shortcuts(self) -> frozenset[str]:
        from pydantic import ValidationError

        found: set[str] = set()
        with suppress(HomarusError):  # a gateway of another version may not have the method
            listed = await self._call("commands.list", {"sessionKey": self._key})
            found = {
                str(row.get("name")) for row in listed["commands"] if row.get("source") == "skill"
            }
        try:
            config = await self._call("config.get", {})
            return _shortcuts(Config.model_validate(config.get("config") or {})) | found
        except (HomarusError, ValidationError):  # it needs a scope that the client may not have
            return frozenset(found)

    async def show(self, show: ShowEvent) -> None:
        """Show the events of the run that is waited for."""
        self._view = show
        if self._approver:
            self._group.create_task(self._approver.load())
        async for name, payload in self._client.events():
            if name != "agent" or not isinstance(payload, dict):
                self._on_other_event(name, payload)
                continue
            run_id = str(payload.get("runId"))
            run, event_data = self._runs.get(run_id), decode_event(payload)
            if run and event_data:
                run.has_events = True
                seq, ts_ms = int(payload.get("seq") or 0), int(payload.get("ts") or 0)
                if isinstance(event_data, ToolEnded) and event_data.result.is_error:
                    event_data = await self._with_reason(event_data, ts_ms)
                show(Event(run_id, self._key, seq, ts_ms, event_data))
                if isinstance(event_data, RunEnded):
                    run.shown.set()
        self._is_closed = True
        for run in self._runs.values():
            if not run.answer.done():
                error = UnavailableError(_CLOSED_EARLY, fix="the next message connects again")
                run.answer.set_exception(error)
                run.answer.exception()  # a message that waits for another call is not retrieved

    def _on_other_event(self, name: str, payload: Json) -> None:
        """Handle an event that is not of a run."""
        if self._approver:
            self._approver.on_event(name, payload)
        if name == "chat" and isinstance(payload, dict):
            self._on_chat(payload)
        if name == "device.pair.requested" and isinstance(payload, dict):
            self._show_reply("", describe_pending(payload))

    async def _with_reason(self, ended: ToolEnded, at_ms: int) -> ToolEnded:
        """Return a failed call with the text of its result, for which it waits a moment.

        Events have it at the verbose level "full" alone; the history has it soon after the event.
        """
        if ended.result.text:
            return ended
        params = {"sessionKey": self._key, "limit": _REASON_LIMIT}
        with suppress(HomarusError, TimeoutError):
            async with asyncio.timeout(_REASON_TIMEOUT_S):
                while True:
                    history = await self._client.call("chat.history", params)
                    for saved in history["messages"] if isinstance(history, dict) else ():
                        is_its_call = saved.get("toolCallId") == ended.result.call_id
                        if is_its_call and int(saved.get("timestamp") or 0) >= at_ms:
                            content = (Text(_result_text(saved)),)
                            return ToolEnded(replace(ended.result, content=content))
                    await asyncio.sleep(_REASON_POLL_S)
        return ended

    def _on_chat(self, payload: Mapping[str, Json]) -> None:
        """Handle a `chat` event: show a command's reply, and record the end of the message."""
        run_id = str(payload.get("runId"))
        text, state = _result_text(payload.get("message")), payload.get("state")
        if state == "final" and run_id.removesuffix(":status") != run_id:
            if run_id.removesuffix(":status") in self._runs:
                self._show_reply(run_id, text)
            return
        run = self._runs.get(run_id)
        if run is None or run.answer.done() or state == "delta":
            return
        if state == "error":
            error = UserError(str(payload.get("errorMessage") or "it failed"))
            run.answer.set_exception(error)
            run.answer.exception()
            return
        if not run.has_events and text:
            self._show_reply(run_id, text)
        is_merged = not run.has_events and not text
        run.answer.set_result(ChatAnswer(text, state == "aborted", is_merged))

    def _show_reply(self, run_id: str, text: str) -> None:
        self._view(Event(run_id, self._key, 1, 0, CommandAnswered(text)))

    async def _stop(self, params: Mapping[str, Json]) -> None:
        with suppress(HomarusError):  # the run's own result reports what happened
            await self._client.call("chat.abort", params)

    async def _call(self, method: str, params: Mapping[str, Json]) -> dict[str, Json]:
        response = await self._request(method, params)
        return response if isinstance(response, dict) else {}

    async def _request(self, method: str, params: Mapping[str, Json]) -> Json:
        return await (await self._connect()).call(method, params)


async def _resolve_key(client: "GatewayClient", key: str | None, agent: str | None) -> str:
    """Return the session key as the gateway stores it."""
    snapshot = client.hello.get("snapshot")
    defaults = snapshot.get("sessionDefaults") if isinstance(snapshot, dict) else None
    if not isinstance(defaults, dict):
        defaults = {}
    if key is None and agent is None and defaults.get("mainSessionKey"):
        return str(defaults["mainSessionKey"])
    name = key or "main"
    if agent and name == "main" and defaults.get("scope") == "global":
        name = global_key(agent)
    elif agent and not name.startswith("agent:"):
        name = f"agent:{agent}:{name}"
    history = await client.call("chat.history", {"sessionKey": name, "limit": 1})
    return str(history["sessionKey"]) if isinstance(history, dict) else name


def decode_event(payload: Mapping[str, Json]) -> EventData | None:
    """Decode the payload of an `agent` event; None for kinds that are not shown."""
    data = payload.get("data")
    if not isinstance(data, dict):
        return None
    match payload.get("stream"), data.get("phase"):
        case "assistant", _:
            media = data.get("mediaUrls")
            files = tuple(map(str, media)) if isinstance(media, list) else ()
            return TextAdded(str(data.get("delta") or ""), files)
        case "tool", "start":
            args = data.get("args")
            name, call_id = str(data.get("name")), str(data.get("toolCallId"))
            return ToolStarted(ToolCall(call_id, name, args if isinstance(args, dict) else {}))
        case "tool", "result":
            name, call_id = str(data.get("name")), str(data.get("toolCallId"))
            parts = (Text(_result_text(data.get("result"))),)
            return ToolEnded(ToolResult(call_id, name, parts, is_error=bool(data.get("isError"))))
        case "error", _:
            return ErrorNoted(str(data.get("message") or data.get("reason") or ""))
        case "lifecycle", "end" | "error":
            return RunEnded(error=str(data.get("error") or ""), aborted=bool(data.get("aborted")))
        case "lifecycle", "fallback":
            return ErrorNoted(f"{data.get('error')}; next: {data.get('next')}")
        case _:
            return None


def _usage_line(display: Json, spent: Usage, key: str) -> str:
    from homarus.agent.reply.wording import usage_line

    return usage_line(spent, usage_display(str(display)) or "off", key)


def _difference(now: Usage, before: Usage) -> Usage:
    return Usage(
        input=now.input - before.input,
        output=now.output - before.output,
        cache_read=now.cache_read - before.cache_read,
        cache_write=now.cache_write - before.cache_write,
        cost=now.cost - before.cost,
    )


def _shortcuts(config: Config) -> frozenset[str]:
    return frozenset({*aliases(config), *config.session.reset_triggers})


def _result_text(result: Json) -> str:
    content = result.get("content") if isinstance(result, dict) else None
    texts = [str(part.get("text") or "") for part in content or () if isinstance(part, dict)]
    return "\n".join(texts)
