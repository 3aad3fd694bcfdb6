"""Install the programs that a skill requires, after a person has approved exactly that.

An install is a command of the owner: the same settings decide about it (`tools.exec`, the approvals
file, lists that deny `exec`), the same records and audit rows are written. It is always asked
about, also under `security: full`, and no entry of an allowlist allows it: an entry was made for
the agent's commands, and an install brings new programs to the machine.
"""

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol
from uuid import uuid4

from homarus.agent.agent import Agent
from homarus.agent.call_audit import CallAudit
from homarus.config.load import LoadedConfig
from homarus.config.network_policy import resolve_network_policy
from homarus.config.paths import Paths
from homarus.config.redaction import redact
from homarus.core.clock import Clock
from homarus.core.errors import HomarusError, ToolDeniedError, UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json, Text, ToolCall, ToolResult
from homarus.core.private_files import make_private_dir
from homarus.core.session_keys import main_key
from homarus.core.text import clip_middle
from homarus.plugins.values import HookContext
from homarus.policy.approvals import ApprovalQuestion
from homarus.policy.decision import decide_tool_call
from homarus.policy.exec_settings import resolve_exec_settings
from homarus.policy.tool_call import CallerFacts, LayerVerdict, ToolCallFacts, ToolDecision
from homarus.skills.catalog import AgentSkills, SkillCatalog
from homarus.skills.download import FetchFile, fetch_file, unpack_download
from homarus.skills.install_plan import (
    TOOLS_FOLDER,
    InstallFacts,
    InstallPlan,
    choose_installs,
    find_install,
)
from homarus.skills.skill import Skill
from homarus.store.approvals import ApprovalRecord
from homarus.store.audit import AuditLog
from homarus.store.base import Store
from homarus.tools.catalog import find_declaration
from homarus.tools.exec.approval import escape_line
from homarus.tools.exec.environment import build_environment
from homarus.tools.exec.exec_rules import read_exec_rules
from homarus.tools.exec.judge import judge_plan
from homarus.tools.exec.plan import ExecPlan, make_plan
from homarus.tools.exec.result_text import format_ending
from homarus.tools.exec.run import run_plan

if TYPE_CHECKING:
    from homarus.agent.approval_service import ApprovalService

DEFAULT_TIMEOUT_S: Final = 300.0
MAX_TIMEOUT_S: Final = 3_600.0
MAX_OUTPUT_CHARS: Final = 20_000
_EXEC: Final = "exec"
_ASKED: Final = "an install of a skill's programs is always asked about"
# What package managers read besides the variables of any command: where packages come from.
_INSTALL_VARIABLES: Final = (
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "PIP_INDEX_URL", "UV_INDEX_URL",
    "UV_DEFAULT_INDEX", "UV_TOOL_DIR", "UV_TOOL_BIN_DIR", "npm_config_registry",
    "NPM_CONFIG_REGISTRY", "npm_config_prefix", "GOPROXY", "GOPATH", "GOBIN", "HOMEBREW_PREFIX",
)  # fmt: skip


class InstallServices(Protocol):
    """What an install needs of the program; the services of the gateway have it."""

    @property
    def loaded(self) -> LoadedConfig: ...
    @property
    def paths(self) -> Paths: ...
    @property
    def store(self) -> Store: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def audit(self) -> AuditLog: ...
    @property
    def agent(self) -> Callable[[str], Agent]: ...
    @property
    def get_approvals(self) -> "Callable[[], ApprovalService]": ...


@dataclass(frozen=True, slots=True)
class InstallOutcome:
    """How an install ended; `code` is None where no program has reported one."""

    plan: InstallPlan
    is_success: bool
    message: str
    output: str = ""
    code: int | None = None

    def encode(self) -> dict[str, Json]:
        """Return the payload of `skills.install`; a command has one stream for all its output."""
        return {
            "ok": self.is_success,
            "message": self.message,
            "stdout": self.output,
            "stderr": "",
            "code": self.code,
        }


class DependencyInstaller:
    """Installs what skills of one agent require. `requester` names who asked for it."""

    def __init__(
        self,
        services: InstallServices,
        catalog: SkillCatalog,
        agent_id: str,
        requester: str,
        fetch: FetchFile = fetch_file,
    ) -> None:
        self._services, self._catalog, self._fetch = services, catalog, fetch
        self._agent, self._requester = services.agent(agent_id), requester
        self._key = main_key(agent_id)

    async def load(self, name: str) -> tuple[AgentSkills, Skill]:
        """Return the agent's skills, and one of them. Raises UserError."""
        found = await asyncio.to_thread(self._catalog.load, self._agent.id)
        skill = found.find(name)
        if skill is None:
            raise UserError(f"there is no skill {name!r}", fix="homarus skills list shows them all")
        return found, skill

    def plan(
        self, found: AgentSkills, skill: Skill, install_id: str = ""
    ) -> tuple[InstallPlan, ...]:
        """Return what is to be installed: one way by its id, else what is missing."""
        return plan_installs(found, skill, self._services.paths, install_id)

    async def install(
        self, plan: InstallPlan, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> InstallOutcome:
        """Ask for approval, run the plan and record both. Raises ToolDeniedError, UserError."""
        if plan.download:
            facts = self._facts(plan)
            detail = "\n".join(map(escape_line, plan.describe()))
            question = ApprovalQuestion(
                _EXEC, _title(plan), detail, plan.digest, wire={"command": plan.download.url}
            )
            return await self._execute(
                plan, facts, question, lambda: self._download(plan, timeout_s)
            )
        prepared = await self._prepare(plan, timeout_s)
        try:
            # No state and no safe programs: nothing but a person allows it.
            judged = judge_plan(
                prepared, state=None, agent_id=self._agent.id, safe_bins=(), asks_always=True
            )
            facts = replace(self._facts(plan), exec=judged.evaluation)
            question = _add_plan(judged.make_question(), plan)
            return await self._execute(plan, facts, question, lambda: self._run(plan, prepared))
        finally:
            prepared.close()

    def _facts(self, plan: InstallPlan) -> ToolCallFacts:
        declaration = find_declaration(_EXEC)
        assert declaration  # noqa: S101 - it is one of the program's own tools
        return ToolCallFacts(
            declaration,
            _describe_args(plan),
            frozenset({"exec"}),
            own_verdict=LayerVerdict("tool", "ask", _ASKED),
        )

    async def _execute(
        self,
        plan: InstallPlan,
        facts: ToolCallFacts,
        question: ApprovalQuestion,
        run: Callable[[], Awaitable[InstallOutcome]],
    ) -> InstallOutcome:
        services, now_ms = self._services, self._services.clock.now_ms
        call = ToolCall(f"install-{uuid4().hex}", _EXEC, facts.args)
        where = HookContext(self._agent.id, self._key, "", str(self._agent.workspace))
        audit = CallAudit(services.audit, where, now_ms)
        caller = self._caller()
        decision = decide_tool_call(facts, caller, self._agent.rules)
        audit.record_decision(call, _EXEC, decision, facts=facts)
        await services.audit.write()
        if decision.action == "deny":
            raise ToolDeniedError(
                f"the install is denied: {decision.reason}",
                fix="homarus policy explain exec shows the rule",
            )
        await self._ask(caller, decision, question, call.id)
        started_ms = now_ms()
        try:
            outcome = await run()
        except HomarusError as exc:
            outcome = InstallOutcome(plan, is_success=False, message=str(exc))
        details: Mapping[str, Json] = {"exitCode": outcome.code, "planDigest": question.digest}
        result = ToolResult(
            call.id, _EXEC, (Text(outcome.message),), not outcome.is_success, details
        )
        audit.record_execution(call, _EXEC, result, now_ms() - started_ms)
        await services.audit.write()
        return outcome

    def _caller(self) -> CallerFacts:
        """Return the owner, whose command runs on this machine and in no session's sandbox."""
        config, state = self._services.loaded.config, self._services.paths.state
        settings = resolve_exec_settings(
            config, read_exec_rules(state), self._agent.id, {}, is_owner=True
        )
        return CallerFacts(self._agent.id, self._key, exec=settings)

    # Approval

    async def _ask(
        self,
        caller: CallerFacts,
        decision: ToolDecision,
        question: ApprovalQuestion,
        call_id: str,
    ) -> None:
        """Ask a person, and use the approval. Raises ToolDeniedError without one."""
        approvals = self._services.get_approvals()
        request: dict[str, Json] = {
            **question.wire,
            "security": caller.exec.security,
            "ask": caller.exec.ask,
            "title": question.title,
            "detail": question.detail,
            "reason": decision.reason,
            "agentId": self._agent.id,
            "sessionKey": self._key,
        }
        record = approvals.make_record(
            agent=self._agent.id,
            session=self._key,
            requester=self._requester,
            request=request,
            digest=question.digest,
            call_id=call_id,
        )
        try:
            is_asked = await approvals.add(record)
            answered = await approvals.wait(record.id) if is_asked else None
        except asyncio.CancelledError:
            await approvals.cancel(record)  # who asked for it is gone
            raise
        if answered is None:
            raise ToolDeniedError(
                "the install needs a person's approval, and no approver can be reached",
                fix="run homarus skills install NAME --deps at a terminal, or connect an approver",
            )
        _check_answer(answered)
        async with self._services.store.transaction() as transaction:
            transaction.use_approval(
                record.id, question.digest, at_ms=self._services.clock.now_ms()
            )

    # Running

    async def _prepare(self, plan: InstallPlan, timeout_s: float) -> ExecPlan:
        """Find and hash the program of the command, in the folder of tools."""
        services = self._services
        folder = services.paths.state / TOOLS_FOLDER
        make_private_dir(folder)
        prepend = services.loaded.config.tools.exec.path_prepend
        env = build_environment({}, os.environ, path_prepend=prepend)
        env |= {name: os.environ[name] for name in _INSTALL_VARIABLES if name in os.environ}
        env["DEBIAN_FRONTEND"] = "noninteractive"
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            prepared = await make_plan(
                plan.command,
                folder=str(folder),
                folder_fd=descriptor,
                workspace=self._agent.workspace,
                env=env,
                requested_env={},
                timeout_s=timeout_s,
            )
        finally:
            os.close(descriptor)
        commands = list(prepared.commands())
        if len(commands) != 1 or commands[0].words != plan.argv:
            prepared.close()
            reason = prepared.reason or "the command is not one program"
            raise UserError(f"{plan.label} cannot be run: {reason}")
        return prepared

    async def _run(self, plan: InstallPlan, prepared: ExecPlan) -> InstallOutcome:
        result = await run_plan(prepared)
        output = redact(clip_middle(result.output, MAX_OUTPUT_CHARS))
        message = "installed" if result.is_success else format_ending(result).strip("[]")
        return InstallOutcome(plan, result.is_success, message, output, result.exit_code)

    async def _download(self, plan: InstallPlan, timeout_s: float) -> InstallOutcome:
        download = plan.download
        assert download  # noqa: S101 - the caller has checked it
        policy = resolve_network_policy(self._services.loaded.config.tools.web.fetch)
        data = await self._fetch(download.url, policy, timeout_s)
        files = await asyncio.to_thread(unpack_download, download, data, plan.install.bins)
        output = "\n".join(str(each) for each in files[:100])
        message = f"downloaded {len(data)} bytes, {len(files)} files in {download.folder}"
        return InstallOutcome(plan, is_success=True, message=message, output=output, code=0)


def _title(plan: InstallPlan) -> str:
    return f"Install this for the skill {plan.skill.name}?"


def _add_plan(question: ApprovalQuestion, plan: InstallPlan) -> ApprovalQuestion:
    """Return the question about a command with what it is for; it is never for always."""
    about = [escape_line(each) for each in plan.describe() if not each.startswith("command: ")]
    digest = hashlib.sha256(f"{plan.digest}{question.digest}".encode()).hexdigest()
    facts = [each for each in question.detail.split("\n") if not each.startswith("always: ")]
    detail = "\n".join([*about, *facts])
    return ApprovalQuestion(_EXEC, _title(plan), detail, digest, wire=question.wire)


def _describe_args(plan: InstallPlan) -> dict[str, Json]:
    args: dict[str, Json] = {"skill": plan.skill.name, "install": plan.install_id}
    if plan.download:
        return args | {"download": plan.download.url, "folder": str(plan.download.folder)}
    return args | {"command": plan.command}


def _check_answer(record: ApprovalRecord) -> None:
    if record.state == "allowed":
        return
    by = f" by {record.resolved_by}" if record.resolved_by else ""
    outcome = {"denied": f"was denied{by}", "expired": "expired without an answer"}
    raise ToolDeniedError(
        f"nothing was installed: the approval {outcome.get(record.state, 'was cancelled')}"
    )


def plan_installs(
    found: AgentSkills, skill: Skill, paths: Paths, install_id: str = ""
) -> tuple[InstallPlan, ...]:
    """Return the plans for a skill on this machine. Raises UserError."""
    facts = InstallFacts(
        found.facts.platform,
        found.facts.has_bin,
        is_root=os.geteuid() == 0,
        state=paths.state,
        home=paths.home,
        settings=found.facts.settings.install,
    )
    if install_id:
        return (find_install(skill, install_id, facts),)
    missing = found.check(skill).missing
    provided = {name for install in skill.metadata.install for name in install.bins}
    one_of = sorted(missing.any_bins, key=lambda name: name not in provided)[:1]
    return choose_installs(skill, (*missing.bins, *one_of), facts)
