"""Explain what the policy says about a tool call, without a run: for `homarus policy explain`."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal

from homarus.agent.agent import Agent, make_agent
from homarus.agent.agent_registry import AgentRegistry
from homarus.agent.caller import resolve_command_caller
from homarus.agent.prompt.chat_context import key_chat_context
from homarus.config.agent_settings import agent_workspaces, resolve_agent_settings
from homarus.config.model_refs import parse_model_ref
from homarus.config.paths import Paths
from homarus.config.schema import Config
from homarus.core.channel_traits import FindTraits
from homarus.core.errors import ToolDeniedError, ToolError, UnknownNameError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Address, Inbound, InboundMetadata, Json, RunOptions, ToolCall
from homarus.core.session_keys import agent_id_of, channel_of, chat_type_of
from homarus.core.text import closest_names
from homarus.policy.access import is_listed, is_named
from homarus.policy.decision import decide_tool_call
from homarus.policy.exec_settings import HOSTS
from homarus.policy.sandbox_settings import (
    ExecPlace,
    is_sandboxed,
    resolve_exec_place,
    resolve_sandbox,
)
from homarus.policy.taint import TAINT_RULES, call_effects
from homarus.policy.tool_call import CallerFacts, ToolCallFacts, ToolDecision, ToolDeclaration
from homarus.policy.tool_policy import declaration_keys
from homarus.policy.workspace_access import WorkspaceAccess
from homarus.sessions.last_route import last_address
from homarus.tools.catalog import find_declaration, known_declarations
from homarus.tools.exec.exec_rules import read_exec_rules
from homarus.tools.execute import prepare_call
from homarus.tools.tool import ToolContext

if TYPE_CHECKING:
    from homarus.tools.sandbox.session_sandbox import SessionSandbox

_SKILL_PROGRAMS: Final = (
    "autoAllowSkills is on: programs of installed skills run without a question, which is not"
    " looked at here"
)


@dataclass(frozen=True, slots=True)
class PolicyQuestion:
    """Which call is explained: the tool, its arguments, and who makes it in which session.

    `sender` is a sender of `channel`; "" is the owner at the terminal, or in a group no sender in
    particular. `entry` is what is stored about the session. `model` is `provider/model`.
    """

    tool: str
    session_key: str
    entry: Mapping[str, Json]
    channel: str = ""
    sender: str = ""
    model: str = ""
    args: Mapping[str, Json] | None = None


@dataclass(frozen=True, slots=True)
class PolicyExplanation:
    """The decision about a call, for whom it holds, and what could not be found out.

    `place` is where a command would run; "" for other tools, and for one that runs nowhere.
    """

    tool: ToolDeclaration
    decision: ToolDecision
    caller: CallerFacts
    notes: tuple[str, ...] = ()
    place: ExecPlace | Literal[""] = ""


async def explain_tool_call(
    config: Config, paths: Paths, question: PolicyQuestion, find_traits: FindTraits
) -> PolicyExplanation:
    """Return the verdicts of all layers. Raises UnknownNameError for a tool that is unknown."""
    tool = find_declaration(question.tool)
    if tool is None:
        keys = {key for each in known_declarations() for key in declaration_keys(each)}
        close = closest_names(question.tool.lower(), sorted(keys))
        raise UnknownNameError("tool", question.tool, close)
    agent_id, key = agent_id_of(question.session_key), question.session_key
    agent = make_agent(resolve_agent_settings(config, paths, agent_id), config.tools)
    chat = key_chat_context(
        config, key, _address(question), _inbounds(config, question, find_traits),
        find_traits=find_traits,
    )  # fmt: skip
    model = parse_model_ref(
        question.model or _session_model(question.entry) or agent.model or "", ""
    )
    if model:
        chat = chat.with_model(model.provider, model.model)
    caller = resolve_command_caller(
        chat.caller, config, read_exec_rules(paths.state), question.entry, RunOptions(), find_traits
    )
    notes = [] if model else ["the model is not known: byProvider is not applied"]
    registry = AgentRegistry(lambda: config, paths, reaches=lambda: bool(config.channels))
    chat = chat.check_groups(registry.all_tools(agent.id).known_groups)
    call = ToolCallFacts(tool, question.args or {})
    call = replace(call, effects=call_effects(call))
    place: ExecPlace | Literal[""] = ""
    if tool.name == "exec":
        place, note = _find_place(config, caller, question)
        notes += [note] if note else []
        notes += [_SKILL_PROGRAMS] if caller.exec.auto_allow_skills else []
    if place == "sandbox":  # not prepared: that would measure the sandbox, and make it
        level = resolve_sandbox(config, agent_id).level
        call = replace(call, effects=call.effects | {"exec"}, sandbox_level=level)
    elif question.args is not None:
        try:
            access = chat.file_access(agent.rules)
            sandbox = _open_sandbox(config, paths, agent, question, access)
            call = await _prepare(registry, agent, caller, question, sandbox)
        except ToolError as exc:
            notes.append(f"the call was not prepared: {exc}")
    decision = decide_tool_call(call, caller, agent.rules.for_chat(chat.rules))
    return PolicyExplanation(tool, decision, caller, tuple(notes), place)


def encode_explanation(found: PolicyExplanation) -> dict[str, Json]:
    """Return an explanation as clients and `--json` show it."""
    decision, caller, settings = found.decision, found.caller, found.caller.exec
    return {
        "tool": found.tool.name,
        "action": decision.action,
        "layer": decision.layer,
        "reason": decision.reason,
        "agentId": caller.agent_id,
        "sessionKey": caller.session_key,
        "channel": caller.channel,
        "sender": caller.sender,
        "isOwner": caller.is_owner,
        "model": f"{caller.provider}/{caller.model}" if caller.provider else None,
        "elevated": caller.elevated,
        "isSandboxed": caller.is_sandboxed,
        "place": found.place or None,
        "exec": {
            "security": settings.security,
            "ask": settings.ask,
            "askFallback": settings.ask_fallback,
            "host": settings.host,
        },
        "verdicts": [
            {"layer": each.layer, "action": each.action, "reason": each.reason}
            for each in decision.verdicts
        ],
        "notes": list(found.notes),
        "taintRules": dict(TAINT_RULES),
    }


def _find_place(
    config: Config, caller: CallerFacts, question: PolicyQuestion
) -> tuple[ExecPlace | Literal[""], str]:
    """Return where a command would run, and what there is to say about it."""
    args = question.args or {}
    host, node, elevated = args.get("host"), args.get("node"), args.get("elevated")
    try:
        place = resolve_exec_place(
            config,
            caller,
            host=next((each for each in HOSTS if each == host), None),
            node=node if isinstance(node, str) else None,
            elevated=elevated if isinstance(elevated, bool) else None,
        )
    except ToolDeniedError as exc:
        return "", f"it runs nowhere: {exc}"
    if place == "sandbox":
        found = resolve_sandbox(config, caller.agent_id)
        whose = "shared sandbox" if found.scope == "shared" else f"sandbox of the {found.scope}"
        return place, (
            f"it runs in the {whose}, if level {found.level} or higher is measured there;"
            " `homarus sandbox explain` shows more"
        )
    if caller.is_sandboxed:
        return place, "it runs on this machine, outside the sandbox, because it is elevated"
    return place, ""


async def _prepare(
    registry: AgentRegistry,
    agent: Agent,
    caller: CallerFacts,
    question: PolicyQuestion,
    sandbox: "SessionSandbox | None",
) -> ToolCallFacts:
    """Return what the preparation of a call finds out about it. Nothing is run."""
    tool, args = registry.all_tools(agent.id).get(question.tool), question.args or {}
    context = ToolContext(
        question.session_key,
        agent.id,
        agent.workspace,
        get_caller=lambda: caller,
        sandbox=sandbox,
    )
    call = ToolCall("explain", tool.name, args)
    prepared = await prepare_call(tool, context, call, tool.parse(args))
    prepared.close()
    return prepared.facts


def _open_sandbox(
    config: Config, paths: Paths, agent: Agent, question: PolicyQuestion, access: WorkspaceAccess
) -> "SessionSandbox | None":
    """Return the sandbox that a command of the session would run in."""
    if not is_sandboxed(config, agent.id, question.session_key):
        return None
    from homarus.tools.sandbox.registry import SandboxRegistry

    registry = SandboxRegistry(
        lambda: config, paths.state, get_workspaces=lambda: agent_workspaces(config, paths)
    )
    return registry.open(agent.id, question.session_key, agent.workspace, access, docs=agent.docs)


def _address(question: PolicyQuestion) -> Address:
    """Return the chat of a session: the last one, else the one that its key names."""
    last = last_address(question.entry)
    if last.channel:
        return last
    channel, _, rest = question.session_key.partition(":group:")
    if not rest:
        channel, _, rest = question.session_key.partition(":channel:")
    chat, _, thread = rest.partition(":topic:")
    channel = question.channel or channel_of(question.session_key)
    return Address(channel, chat or question.sender, thread=thread)


def _inbounds(
    config: Config, question: PolicyQuestion, find_traits: FindTraits
) -> tuple[Inbound, ...]:
    """Return a message of the sender, with the authority that access control gives it."""
    if not question.sender:
        return ()
    address, kind = _address(question), chat_type_of(question.session_key)
    address = replace(address, channel=question.channel or address.channel)
    is_owner = _is_owner(config, question, address, find_traits)
    return (
        Inbound(
            "explain",
            address,
            question.sender,
            "",
            authority="owner" if is_owner else "authorised",
            metadata=InboundMetadata(kind=kind),
        ),
    )


def _is_owner(
    config: Config, question: PolicyQuestion, address: Address, find_traits: FindTraits
) -> bool:
    """Return whether access control counts the sender as the owner."""
    commands, channel, sender = config.commands, address.channel, question.sender
    if channel not in config.channels:
        return True
    if commands.allow_from:
        listed = commands.allow_from.get(channel, commands.allow_from.get("*", ()))
        if not is_listed(channel, sender, listed, find_traits):
            return False
    if commands.owner_allow_from:
        return is_named(channel, sender, commands.owner_allow_from, find_traits)
    from homarus.config.channels import common_settings

    settings = common_settings(config, channel, address.account)
    is_direct = chat_type_of(question.session_key) == "direct"
    return is_direct and is_named(channel, sender, settings.allow_from, find_traits)


def _session_model(entry: Mapping[str, Json]) -> str:
    provider, model = entry.get("providerOverride"), entry.get("modelOverride")
    return f"{provider}/{model}" if provider and model else str(model or "")
