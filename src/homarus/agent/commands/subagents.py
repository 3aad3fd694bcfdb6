"""`/subagents`, `/kill` and `/steer`: the sub-agents of a conversation."""

from typing import TYPE_CHECKING, Final

from homarus.agent.commands.context import AgentCommandContext
from homarus.core.errors import UserError
from homarus.core.text import one_line
from homarus.plugins.commands import CommandReply, command

if TYPE_CHECKING:  # imported by the first command
    from homarus.agent.subagents.control import SubagentControl

_USAGE: Final = (
    "/subagents list · info TARGET · log TARGET [LIMIT] [tools] · send TARGET MESSAGE · "
    "steer TARGET MESSAGE · kill TARGET|all · "
    "spawn AGENT TASK [--model MODEL] [--thinking LEVEL]\n"
    "A TARGET is a number of the list, a label, or the start of a run id or session key."
)
_EXPLAIN: Final = "homarus policy explain sessions_spawn says which setting decides"
_TOOL: Final = "sessions_spawn"


@command("subagents")
async def subagents(context: AgentCommandContext) -> CommandReply:
    """`/subagents list|info|log|send|steer|kill|spawn [target] [value]`."""
    action, _, rest = context.args.strip().partition(" ")
    target, _, value = rest.strip().partition(" ")
    match action.lower():
        case "" | "list":
            return CommandReply(await _list(context))
        case "info":
            return CommandReply(await _info(context, target))
        case "log":
            return CommandReply(await _log(context, target, value.split()))
        case "send":
            return CommandReply(await _send(context, target, value))
        case "steer":
            return await _steer(context, target, value)
        case "kill":
            return await _kill(context, target)
        case "spawn":
            return CommandReply(await _spawn(context, target, value))
        case "help":
            return CommandReply(_USAGE)
    raise UserError(f"/subagents does not understand {one_line(action, 40)!r}", fix=_USAGE)


@command("kill")
async def kill(context: AgentCommandContext) -> CommandReply:
    """`/kill <target|all>`."""
    return await _kill(context, context.args.strip())


@command("steer")
async def steer(context: AgentCommandContext) -> CommandReply:
    """`/steer <target> <message>`."""
    target, _, message = context.args.strip().partition(" ")
    return await _steer(context, target, message)


def _control(context: AgentCommandContext) -> "SubagentControl":
    if context.services.subagents is None:
        raise UserError("there are no sub-agents here")
    return context.services.subagents.control()


async def _list(context: AgentCommandContext) -> str:
    from homarus.agent.subagents.rows import format_list
    from homarus.agent.subagents.targets import DEFAULT_RECENT_MINUTES

    found = await _control(context).find_all(context.key)
    return format_list(found, context.services.clock.now_ms(), DEFAULT_RECENT_MINUTES)


async def _info(context: AgentCommandContext, target: str) -> str:
    control = _control(context)
    record = await control.find(context.key, target)
    return await control.describe(record, has_paths=context.is_for_owner_alone)


async def _log(context: AgentCommandContext, target: str, words: list[str]) -> str:
    from homarus.agent.subagents.log import DEFAULT_LIMIT, format_log

    control = _control(context)
    limit, has_tools = DEFAULT_LIMIT, False
    for word in words:
        if word.lower() == "tools":
            has_tools = True
        elif word.isdecimal() and int(word):
            limit = int(word)
        else:
            fix = "/subagents log TARGET [LIMIT] [tools]"
            raise UserError(f"/subagents log does not understand {one_line(word, 40)!r}", fix=fix)
    record = await control.find(context.key, target)
    return format_log(await control.read_log(record, limit, has_tools=has_tools))


async def _send(context: AgentCommandContext, target: str, message: str) -> str:
    seed = _seed(context)
    return (await _control(context).send(context.key, target, message, seed=seed)).text


async def _steer(context: AgentCommandContext, target: str, message: str) -> CommandReply:
    if not target or not message.strip():
        raise UserError("which sub-agent, and what should it do?", fix="/steer TARGET MESSAGE")
    seed = _seed(context)
    return CommandReply(
        (await _control(context).steer(context.key, target, message, seed=seed)).text
    )


async def _kill(context: AgentCommandContext, target: str) -> CommandReply:
    if not target:
        raise UserError("which sub-agent?", fix="/kill TARGET, or /kill all")
    return CommandReply((await _control(context).kill(context.key, target)).text)


async def _spawn(context: AgentCommandContext, agent_id: str, text: str) -> str:
    """Start a sub-agent as the agent itself would: the same rules hold."""
    from homarus.agent.prompt.chat_context import session_chat_context
    from homarus.agent.subagents.subagent_service import SpawnSource
    from homarus.policy.decision import decide_tool_call
    from homarus.policy.tool_call import ToolCallFacts
    from homarus.tools.subagent_port import SpawnRequest

    services, agent = context.services, context.agent
    task, options = _split_options(text)
    if not agent_id or not task:
        fix = "/subagents spawn AGENT TASK [--model MODEL] [--thinking LEVEL]"
        raise UserError("which agent, and what should it do?", fix=fix)
    tools, session = services.get_tools(agent.id), await context.session()
    chat = session_chat_context(
        context.config, session, [context.inbound], find_traits=services.find_traits
    )
    found = tools.get(_TOOL) if _TOOL in tools else None
    if found is None:
        raise UserError(f"the tools of this agent do not include {_TOOL}", fix=_EXPLAIN)
    facts = ToolCallFacts(found.declaration)
    decision = decide_tool_call(facts, chat.caller, agent.rules.for_chat(chat.rules))
    if decision.action == "deny":
        raise UserError(f"{_TOOL} is denied here: {decision.reason}", fix=_EXPLAIN)
    assert services.subagents is not None  # noqa: S101 - the tool is made with it
    source = SpawnSource(context.key, context.inbound, chat.caller, _seed(context))
    chosen = options.get("model", ""), options.get("thinking", "")
    request = SpawnRequest(task, agent_id=agent_id, model=chosen[0], thinking=chosen[1])
    started = await services.subagents().start(source, request)
    warning = f" {started.model.warning}" if started.model.warning else ""
    return (
        f"Started a sub-agent of {agent_id} (run {started.run_id[:8]}, session"
        f" {started.child_key}). Its result comes to this conversation.{warning}"
    )


def _split_options(text: str) -> tuple[str, dict[str, str]]:
    """Return the task, and the values of `--model` and `--thinking` in it."""
    words, task, options = text.split(), list[str](), dict[str, str]()
    while words:
        word = words.pop(0)
        if word in {"--model", "--thinking"}:
            if not words:
                raise UserError(f"{word} needs a value")
            options[word.removeprefix("--")] = words.pop(0)
        else:
            task.append(word)
    return (" ".join(task) if options else text.strip()), options


def _seed(context: AgentCommandContext) -> str:
    """Return what is the same when the command is executed again after a crash."""
    inbound = context.inbound
    return f"{context.key}:{inbound.address.channel}:{inbound.address.account}:{inbound.id}"
