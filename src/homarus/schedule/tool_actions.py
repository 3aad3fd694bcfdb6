"""The actions of the `cron` tool: what an agent may do with its own jobs.

An agent reaches the jobs of its own; in a conversation that other people read, only those that were
created there.
"""

import json
from collections.abc import Awaitable, Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Final, TypeAlias

from homarus.config.timezone import load_zone
from homarus.config.tools_schema import MessageToolConfig
from homarus.core.errors import ToolError, UnknownNameError, UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Address, Json, Text
from homarus.core.session_keys import is_cron, is_subagent, normalize_agent_id
from homarus.core.text import closest_names
from homarus.policy.audience import session_readers
from homarus.schedule.announce_check import check_announced_chat
from homarus.schedule.cron_answers import encode_entries, encode_public_status, encode_run_result
from homarus.schedule.cron_arguments import read_job, read_job_id
from homarus.schedule.cron_service import CronService
from homarus.schedule.cron_values import RunMode
from homarus.schedule.job import CronJob, JobCreator, encode_job
from homarus.schedule.job_fields import check_job_fields
from homarus.schedule.job_input import normalize_job_create, normalize_job_patch
from homarus.schedule.recent_context import read_recent_context
from homarus.sessions.notices import MAX_NOTICE_CHARS, WakeMode
from homarus.store.base import Store
from homarus.tools.tool import ToolContext, ToolOutput

_MAX_RUNS: Final = 20

# Leaves a text for an agent's main session, which is looked at now or at the next heartbeat.
WakeAgent: TypeAlias = Callable[[str, str, WakeMode], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class CronActions:
    """What the tool calls.

    `main_key` returns the key of an agent's main session, `get_rules` the settings for writing to
    other chats, `get_channels` the channels of the config.
    """

    get_cron: Callable[[], CronService]
    store: Store
    wake: WakeAgent
    main_key: Callable[[str], str]
    get_default_agent: Callable[[], str]
    get_zone: Callable[[], str]
    get_rules: Callable[[], MessageToolConfig] = MessageToolConfig.model_construct
    get_channels: Callable[[], Collection[str]] = tuple

    async def run(self, ctx: ToolContext, args: Mapping[str, Json]) -> ToolOutput:
        """Run an action of the tool. Raises ToolError."""
        action = str(args.get("action"))
        try:
            return _output(await self._run(ctx, action, args))
        except UserError as exc:
            raise ToolError(exc.message, fix=exc.fix) from exc

    async def _run(
        self, ctx: ToolContext, action: str, args: Mapping[str, Json]
    ) -> dict[str, Json]:
        cron = self.get_cron()
        match action:
            case "status":
                found = encode_public_status(await cron.status())
                return {name: value for name, value in found.items() if name != "storePath"}
            case "list":
                jobs = await cron.jobs(include_disabled=args.get("includeDisabled") is True)
                return {"jobs": [self._show(job) for job in jobs if self._is_reached(ctx, job)]}
            case "add":
                draft = await self._draft(ctx, args)
                return self._show(await cron.add(draft, _creator(ctx)))
            case "wake":
                return await self._wake(ctx, args)
            case _:
                return await self._change(ctx, action, args)

    async def _change(
        self, ctx: ToolContext, action: str, args: Mapping[str, Json]
    ) -> dict[str, Json]:
        """Run an action on one job."""
        cron, job = self.get_cron(), await self._find(ctx, read_job_id(args, action))
        match action:
            case "update":
                patch = read_job(args, action)
                check_job_fields(patch)
                changes = normalize_job_patch(patch) or {}
                self._check_owner(ctx, changes)
                if isinstance(changed := changes.get("delivery"), dict):
                    delivery = {**(encode_job(job).get("delivery") or {}), **changed}
                    self._check_chat(ctx, delivery)
                return self._show(await cron.update(job.id, patch, _creator(ctx).taint))
            case "remove":
                return {"ok": True, "removed": await cron.remove(job.id)}
            case "run":
                mode: RunMode = "due" if args.get("runMode") == "due" else "force"
                return encode_run_result(await cron.run(job.id, mode))
            case "runs":
                return {"entries": encode_entries(await cron.runs(job.id, _MAX_RUNS))}
            case _:
                raise ToolError(f"cron has no action {action[:40]!r}", fix="use list or add")

    async def _draft(self, ctx: ToolContext, args: Mapping[str, Json]) -> dict[str, Json]:
        """Return the job to add, with what the conversation implies."""
        job = read_job(args, "add")
        check_job_fields(job)
        draft = normalize_job_create(job) or {}
        draft.setdefault("agentId", ctx.agent)
        if not (is_cron(ctx.session_key) or is_subagent(ctx.session_key)):
            draft.setdefault("sessionKey", ctx.session_key)
        self._check_owner(ctx, draft)
        payload = draft.get("payload")
        if isinstance(payload, dict) and payload.get("kind") == "systemEvent":
            count = args.get("contextMessages")
            count = count if isinstance(count, int) else 0
            if context := await read_recent_context(self.store, ctx.session_key, count):
                text = f"{payload.get('text', '')}\n\nRecent messages:\n{context}"
                payload["text"] = text if len(text) <= MAX_NOTICE_CHARS else payload["text"]
        if isinstance(draft.get("delivery"), dict):
            self._check_chat(ctx, draft["delivery"])
            draft["delivery"] = _with_chat(ctx, draft["delivery"])
        return draft

    def _check_owner(self, ctx: ToolContext, job: Mapping[str, Json]) -> None:
        """Raise ToolError for a job of another agent, or one that writes to another session."""
        agent, key = job.get("agentId", ctx.agent), job.get("sessionKey")
        if normalize_agent_id(str(agent or self.get_default_agent())) != ctx.agent:
            raise ToolError(
                f"an agent schedules for itself, not for {str(agent)[:60]!r}",
                fix="leave agentId out",
            )
        if isinstance(key, str) and key not in {ctx.session_key, self.main_key(ctx.agent), "main"}:
            raise ToolError(
                "a job writes to this session or to the main one", fix="leave sessionKey out"
            )

    def _check_chat(self, ctx: ToolContext, delivery: Mapping[str, Json]) -> None:
        check_announced_chat(self.get_rules(), ctx, delivery, self.get_channels())

    async def _find(self, ctx: ToolContext, job_id: str) -> CronJob:
        """Return a job that the conversation reaches. Raises UnknownNameError."""
        jobs = await self.get_cron().jobs(include_disabled=True)
        reached = [job for job in jobs if self._is_reached(ctx, job)]
        for job in reached:
            if job.id == job_id:
                return job
        ids = {name: job.id for job in reached for name in (job.id, job.name)}
        near = dict.fromkeys(ids[name] for name in closest_names(job_id, ids))
        raise UnknownNameError("job", job_id, tuple(near))

    def _is_reached(self, ctx: ToolContext, job: CronJob) -> bool:
        if normalize_agent_id(job.agent or self.get_default_agent()) != ctx.agent:
            return False
        return session_readers(ctx.session_key) != "others" or ctx.session_key in {
            job.session_key,
            job.creator.session_key,
        }

    async def _wake(self, ctx: ToolContext, args: Mapping[str, Json]) -> dict[str, Json]:
        text = args.get("text")
        if not isinstance(text, str) or not text.strip():
            raise ToolError("wake needs a text", fix="what should be looked at")
        mode: WakeMode = "now" if args.get("mode") == "now" else "next-heartbeat"
        await self.wake(ctx.agent, text.strip(), mode)
        return {"ok": True}

    def _show(self, job: CronJob) -> dict[str, Json]:
        """Return a job as the model reads it: with its next run in the user's time."""
        shown = encode_job(job)
        if at_ms := job.state.next_run_at_ms:
            at = datetime.fromtimestamp(at_ms / 1000, UTC).astimezone(load_zone(self.get_zone()))
            shown["nextRun"] = at.isoformat(timespec="seconds")
        return shown


def _creator(ctx: ToolContext) -> JobCreator:
    taint = tuple((one.kind, one.origin) for one in ctx.get_taint())
    return JobCreator("tool", ctx.session_key, taint)


def _with_chat(ctx: ToolContext, delivery: Mapping[str, Json]) -> dict[str, Json]:
    """Return a delivery to the chat of the conversation, if it names no other."""
    here, channel = ctx.here, delivery.get("channel")
    is_open = delivery.get("mode", "announce") == "announce" and not delivery.get("to")
    if here is None or not is_open or channel not in {None, "last", here.channel}:
        return dict(delivery)
    if not _can_reach(ctx, here):
        return dict(delivery)
    filled = {**delivery, "channel": here.channel, "to": here.chat}
    if here.account != "default":
        filled["accountId"] = here.account
    if here.thread:
        filled["threadId"] = here.thread
    return filled


def _can_reach(ctx: ToolContext, chat: Address) -> bool:
    """Return whether a chat can be written to later: one of a terminal or a page cannot."""
    accounts = ctx.messenger.accounts() if ctx.messenger else ()
    return (chat.channel, chat.account) in accounts


def _output(answer: dict[str, Json]) -> ToolOutput:
    text = json.dumps(answer, ensure_ascii=False, separators=(",", ":"))
    return ToolOutput((Text(text),), answer)
