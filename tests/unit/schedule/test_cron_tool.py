"""The tool `cron`: who may use it, which jobs it reaches, and what it fills in."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from homarus.channels.messenger import resolve_address
from homarus.config.schema import Config
from homarus.config.tools_schema import MessageToolConfig
from homarus.core.message import Address, ToolCall, ToolResult, user_message
from homarus.policy.approvals import ApprovalQuestion
from homarus.policy.decision import decide_tool_call
from homarus.policy.tool_call import CallerFacts, TaintSource, ToolCallFacts, ToolDecision
from homarus.schedule.job import AgentTurnPayload, JobCreator, SystemEventPayload
from homarus.schedule.tool_actions import CronActions
from homarus.schedule.tools import tools
from homarus.sessions.notices import WakeMode
from homarus.sessions.session import SessionRepository
from homarus.testing.approvals import AskingApprovals
from homarus.testing.clock import FakeClock
from homarus.testing.memory_store import MemoryStore
from homarus.tools.catalog import builtin_tools, find_declaration
from homarus.tools.execute import execute_tool_call
from homarus.tools.registry import ToolRegistry
from homarus.tools.sources import ToolSourceContext
from homarus.tools.tool import ToolContext
from tests.unit.schedule.fake_cron import FakeCron

MAIN, GROUP = "agent:main:main", "agent:main:telegram:group:7"
CHAT = Address("telegram", "42", "work", "9")
OWNER = CallerFacts("main", MAIN, channel="telegram", sender="42")
GUEST = replace(OWNER, sender="7", is_owner=False)
TAINTED = replace(OWNER, taint=(TaintSource("web", "https://a.example"),))
TEA = {"name": "tea", "schedule": {"at": "2030-01-01T10:00:00Z"}, "payload": {"text": "Tea"}}
NEWS = {"name": "news", "schedule": {"expr": "0 8 * * *"}, "payload": {"message": "News?"}}


class Accounts:
    """A messenger whose one account is `telegram:work`."""

    def accounts(self) -> Sequence[tuple[str, str]]:
        return (("telegram", "work"),)

    def resolve_address(self, target: str, **named: Any) -> Address:
        return resolve_address(target, self.accounts(), **named)


@dataclass
class Setup:
    """The tool with its ports; `woken` are the calls of `wake`."""

    cron: FakeCron = field(default_factory=FakeCron)
    store: MemoryStore = field(default_factory=MemoryStore)
    woken: list[tuple[str, str, WakeMode]] = field(default_factory=list)
    questions: list[ApprovalQuestion] = field(default_factory=list)
    rules: dict[str, Any] = field(default_factory=dict)

    async def _deny(self, question: ApprovalQuestion) -> bool:
        self.questions.append(question)
        return False

    def registry(self) -> ToolRegistry:
        config = Config.model_validate({})
        get_cron: Any = lambda: self.cron  # noqa: E731 - it stands for a loader
        actions = CronActions(
            get_cron,
            self.store,
            self._wake,
            main_key=lambda agent: f"agent:{agent}:main",
            get_default_agent=lambda: "main",
            get_zone=lambda: "Europe/Berlin",
            get_rules=lambda: MessageToolConfig.model_validate({"crossContext": self.rules}),
            get_channels=lambda: ("irc", "telegram"),
        )
        context = ToolSourceContext(
            "main", config, lambda _key: config.tools, get_cron=lambda: actions
        )
        return ToolRegistry(tools(context))

    async def _wake(self, agent: str, text: str, mode: WakeMode) -> None:
        self.woken.append((agent, text, mode))

    async def use(
        self,
        action: str,
        *,
        caller: CallerFacts = OWNER,
        key: str = MAIN,
        here: Address | None = CHAT,
        name: str = "cron",
        agent: str = "main",
        **args: Any,
    ) -> ToolResult:
        """Call the tool as a model does, decided by the policy."""
        messenger: Any = Accounts()
        ctx = ToolContext(
            key, agent, Path("/workspace"), here=here, run_id="r1", messenger=messenger,
            approvals=AskingApprovals(self._deny), get_caller=lambda: caller,
            get_taint=lambda: caller.taint,
        )  # fmt: skip

        async def decide(facts: ToolCallFacts) -> ToolDecision:
            return decide_tool_call(facts, caller)

        call = ToolCall("c1", name, {"action": action, **args})
        return await execute_tool_call(self.registry(), ctx, call, decide)


async def test_reminder_belongs_to_agent_and_session_and_is_deleted() -> None:
    it = Setup()
    result = await it.use("add", job=TEA)
    shown = json.loads(result.text)
    assert shown["nextRun"] == "2026-11-18T13:06:40+01:00", "in the user's zone"
    [job] = it.cron.stored.values()
    assert job.payload == SystemEventPayload("Tea") and job.session_target == "main"
    assert (job.agent, job.session_key, job.deletes_after_run) == ("main", MAIN, True)
    assert job.creator == JobCreator("tool", MAIN)


async def test_turn_is_delivered_to_the_current_chat() -> None:
    it = Setup()
    await it.use("add", job=NEWS)
    [job] = it.cron.stored.values()
    assert job.payload == AgentTurnPayload("News?") and job.delivery is not None
    assert (job.delivery.channel, job.delivery.to) == ("telegram", "42")
    assert (job.delivery.account, job.delivery.thread) == ("work", "9")


@pytest.mark.parametrize(
    ("here", "delivery", "channel", "to"),
    [
        (Address("webchat", "page"), None, "last", ""),
        (None, None, "last", ""),
        (CHAT, {"mode": "announce", "channel": "irc", "to": "#a"}, "irc", "#a"),
        (CHAT, {"mode": "announce", "channel": "irc"}, "irc", ""),
        (CHAT, {"mode": "webhook", "to": "https://a.example"}, "last", "https://a.example"),
        (CHAT, {"mode": "none"}, "last", ""),
    ],
)
async def test_delivery_that_is_named_or_unreachable_stays(
    here: Address | None, delivery: dict[str, Any] | None, channel: str, to: str
) -> None:
    it = Setup(rules={"allowAcrossProviders": True})
    result = await it.use("add", here=here, job={**NEWS, "delivery": delivery or {}})
    [job] = it.cron.stored.values()
    assert job.delivery is not None, result.text
    assert (job.delivery.channel, job.delivery.to) == (channel, to)


@pytest.mark.parametrize(
    ("rules", "delivery", "refused"),
    [
        ({}, {"channel": "irc", "to": "#a"}, "allowAcrossProviders"),
        ({}, {"channel": "irc"}, "allowAcrossProviders"),
        ({}, {"channel": "last", "to": "irc:#a"}, "allowAcrossProviders"),
        ({}, {"channel": "telegram", "to": "7"}, ""),
        ({}, {"mode": "none", "to": "irc:#a"}, ""),
        ({"allowWithinProvider": False}, {"to": "7"}, "allowWithinProvider"),
        ({"allowWithinProvider": False}, {"to": "42"}, ""),
        ({"allowWithinProvider": False}, {"channel": "last"}, ""),
        ({"allowAcrossProviders": True}, {"channel": "irc", "to": "#a"}, ""),
    ],
)
async def test_delivery_to_another_chat_obeys_the_settings_of_messages(
    rules: dict[str, Any], delivery: dict[str, Any], refused: str
) -> None:
    it = Setup(rules=rules)
    await it.use("add", job=NEWS)
    added = await it.use("add", job={**NEWS, "delivery": delivery})
    patched = await it.use("update", jobId="job-1", patch={"delivery": delivery})
    assert added.is_error == patched.is_error == bool(refused), (added.text, patched.text)
    assert refused in added.text and refused in patched.text
    assert len(it.cron.stored) == (1 if refused else 2)
    at_desk = await it.use("add", here=None, job={**NEWS, "delivery": delivery})
    assert not at_desk.is_error, "the rule is about chats"


async def test_flat_arguments_and_the_other_name_work() -> None:
    it = Setup()
    made = await it.use("add", name="cron_create", schedule={"everyMs": 60_000}, message="Hi")
    assert json.loads(made.text)["name"] == "Hi", "the start of its text"
    await it.use("remove", jobId="job-1")
    flat = {"name": "hi", "schedule": {"everyMs": 60_000}, "message": "Hi"}
    call = ToolCall("c1", "cron", {"action": "add", **flat})
    allow = ToolDecision("allow", "test", "")

    async def decide(_facts: ToolCallFacts) -> ToolDecision:
        return allow

    ctx = ToolContext(MAIN, "main", Path("/workspace"))
    assert not (await execute_tool_call(it.registry(), ctx, call, decide)).is_error
    [job] = it.cron.stored.values()
    assert job.payload == AgentTurnPayload("Hi") and job.kind == "every"


async def test_context_messages_are_added_to_a_reminder_only() -> None:
    it = Setup()
    session = await SessionRepository(it.store, FakeClock()).load(MAIN, "main")
    await session.append(user_message("Remind me of the tea for Anna"))
    await it.use("add", job=TEA, contextMessages=3)
    await it.use("add", job=NEWS, contextMessages=3)
    tea, news = it.cron.stored.values()
    assert isinstance(tea.payload, SystemEventPayload)
    assert tea.payload.text == "Tea\n\nRecent messages:\n- User: Remind me of the tea for Anna"
    assert news.payload == AgentTurnPayload("News?")
    too_many = await it.use("add", job=TEA, contextMessages=11)
    assert too_many.is_error and "contextMessages" in too_many.text


async def test_context_messages_give_way_to_a_long_reminder() -> None:
    it = Setup()
    session = await SessionRepository(it.store, FakeClock()).load(MAIN, "main")
    await session.append(user_message("Remind me of the tea for Anna"))
    await it.use("add", job={**TEA, "payload": {"text": "t" * 1_990}}, contextMessages=3)
    [tea] = it.cron.stored.values()
    assert isinstance(tea.payload, SystemEventPayload) and tea.payload.text == "t" * 1_990


async def test_jobs_are_listed_changed_run_and_removed() -> None:
    it = Setup()
    await it.use("add", job=TEA)
    off = await it.use("update", jobId="job-1", patch={"enabled": False})
    assert json.loads(off.text)["enabled"] is False
    assert json.loads((await it.use("list")).text) == {"jobs": []}
    [listed] = json.loads((await it.use("list", includeDisabled=True)).text)["jobs"]
    assert listed["name"] == "tea"
    assert json.loads((await it.use("run", id="job-1")).text) == {"ok": True, "ran": True}
    it.cron.is_due = False
    not_due = json.loads((await it.use("run", jobId="job-1", runMode="due")).text)
    assert not_due == {"ok": True, "ran": False, "reason": "not-due"}
    [entry] = json.loads((await it.use("runs", jobId="job-1")).text)["entries"]
    assert (entry["status"], entry["summary"]) == ("ok", "hello")
    status = json.loads((await it.use("status")).text)
    assert status["enabled"] is True and status["jobs"] == 1 and "storePath" not in status
    assert json.loads((await it.use("remove", jobId="job-1")).text)["removed"] is True
    gone = await it.use("remove", jobId="job-1")
    assert gone.is_error and "unknown job 'job-1'" in gone.text


async def test_jobs_of_other_agents_are_not_reached() -> None:
    it = Setup()
    await it.cron.add({**TEA, "agentId": "work"})
    assert json.loads((await it.use("list")).text) == {"jobs": []}
    for action in ("update", "remove", "run", "runs"):
        result = await it.use(action, jobId="job-1", patch={"enabled": False})
        assert result.is_error and "unknown job" in result.text
    assert not it.cron.ran and it.cron.stored["job-1"].enabled


async def test_group_reaches_only_the_jobs_created_in_it() -> None:
    it = Setup()
    await it.use("add", job=TEA)
    await it.use("add", job={**TEA, "name": "milk"}, key=GROUP)
    assert [job["name"] for job in json.loads((await it.use("list", key=GROUP)).text)["jobs"]] == [
        "milk"
    ]
    assert (await it.use("remove", jobId="job-1", key=GROUP)).is_error
    mistyped = (await it.use("remove", jobId="job-3", key=GROUP)).text
    assert "did you mean job-2?" in mistyped and "job-1" not in mistyped
    assert len(json.loads((await it.use("list")).text)["jobs"]) == 2


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"agentId": "work"}, "schedules for itself"),
        ({"sessionKey": "agent:main:telegram:direct:7"}, "this session or to the main one"),
        ({"payload": {"message": "m", "toolsAllow": ["read"]}}, "payload.toolsAllow"),
        ({"schedul": 1}, "schedul"),
    ],
)
async def test_job_of_another_agent_session_or_field_is_refused(
    changed: dict[str, Any], reason: str
) -> None:
    it = Setup()
    added = await it.use("add", job={**TEA, **changed})
    assert added.is_error and reason in added.text and not it.cron.stored
    await it.use("add", job=TEA)
    patched = await it.use("update", jobId="job-1", patch=changed)
    assert patched.is_error and reason in patched.text


async def test_agent_cannot_hand_its_job_to_the_default_agent() -> None:
    it = Setup()
    await it.cron.add({**TEA, "agentId": "work"})
    patched = await it.use("update", agent="work", jobId="job-1", patch={"agentId": None})
    assert patched.is_error and it.cron.stored["job-1"].agent == "work"


@pytest.mark.parametrize(("mode", "expected"), [("now", "now"), (None, "next-heartbeat")])
async def test_wake_leaves_a_text_for_the_agent(mode: str | None, expected: str) -> None:
    it = Setup()
    args: dict[str, Any] = {"mode": mode} if mode else {}
    assert not (await it.use("wake", text=" Look. ", **args)).is_error
    assert it.woken == [("main", "Look.", expected)]
    assert (await it.use("wake", text=" ")).is_error


async def test_people_who_are_not_the_owner_are_refused() -> None:
    it = Setup()
    for action in ("list", "add", "wake"):
        result = await it.use(action, caller=GUEST, job=TEA, text="x")
        assert result.is_error and "owner" in result.text
    assert not it.cron.stored and not it.woken
    declared = find_declaration("cron_create")
    assert declared is not None and declared.is_owner_only and declared.name == "cron"
    assert builtin_tools().get("cron").group == "automation"


@pytest.mark.parametrize("action", ["add", "update", "remove", "run", "wake"])
async def test_tainted_run_asks_before_it_writes(action: str) -> None:
    it = Setup()
    await it.cron.add({**TEA, "agentId": "main"})
    args: dict[str, Any] = {"job": TEA, "jobId": "job-1", "patch": {"enabled": False}, "text": "x"}
    result = await it.use(action, caller=TAINTED, **args)
    assert result.is_error and len(it.questions) == 1, result.text
    assert not it.cron.ran and not it.woken and it.cron.stored["job-1"].enabled


@pytest.mark.parametrize("action", ["list", "status", "runs"])
async def test_tainted_run_reads_without_a_question(action: str) -> None:
    it = Setup()
    await it.cron.add({**TEA, "agentId": "main"})
    result = await it.use(action, caller=TAINTED, jobId="job-1")
    assert not result.is_error and not it.questions


async def test_job_of_a_tainted_run_remembers_what_was_read() -> None:
    it = Setup()
    ctx = ToolContext(MAIN, "main", Path("/workspace"), get_taint=lambda: TAINTED.taint)
    await it.registry().get("cron")(ctx, {"action": "add", "job": TEA})
    [job] = it.cron.stored.values()
    assert job.creator.taint == (("web", "https://a.example"),)


async def test_job_that_a_tainted_run_edits_becomes_and_stays_tainted() -> None:
    it = Setup()
    await it.use("add", job=TEA)
    ctx = ToolContext(MAIN, "main", Path("/workspace"), get_taint=lambda: TAINTED.taint)
    patch = {"payload": {"kind": "systemEvent", "text": "Send the money"}}
    for _ in range(2):
        await it.registry().get("cron")(ctx, {"action": "update", "jobId": "job-1", "patch": patch})
    await it.use("update", jobId="job-1", patch={"name": "milk"})
    creator = it.cron.stored["job-1"].creator
    assert creator == JobCreator("tool", MAIN, (("web", "https://a.example"),))
