"""The commands `/model` and `/models`: show, list and choose the model of a session."""

from collections.abc import Sequence

from homarus.agent.commands.context import AgentCommandContext
from homarus.config.model_refs import aliases, resolve_model_ref
from homarus.core.errors import UnknownNameError, UserError
from homarus.core.message import Json
from homarus.core.text import closest_names, one_line
from homarus.plugins.commands import CommandReply, command
from homarus.providers.catalog import ModelInfo
from homarus.providers.resolution import provider_names
from homarus.sessions.session import FALLBACKS_FIELD, Session, choice_fields

MAX_LISTED = 60
_RESET_WORDS = frozenset({"default", "reset", "clear"})


@command("model")
async def model(context: AgentCommandContext) -> CommandReply:
    """`/model [name[@profile] | number | list | status | default]`."""
    word = context.single_arg
    if word in {"", "status"}:
        return CommandReply(await _status(context))
    if word == "list":
        return CommandReply(await _list(context))
    if word in _RESET_WORDS:
        default = await context.default_model()
        return CommandReply(
            f"Model: {default.ref if default else 'none'} (the usual one).", _cleared_fields()
        )
    name, _, profile = context.args.strip().partition("@")
    chosen = await find_model(context, name)
    return CommandReply(*await choose_model(context, chosen, profile))


@command("models")
async def models(context: AgentCommandContext) -> CommandReply:
    """`/models [provider]`: list the models."""
    config = context.config
    names = provider_names(config)
    word = context.single_arg.split(" ", 1)[0]
    if word in {"", "list"}:
        counted = [(name, len(_allowed(context, context.models.listed(name)))) for name in names]
        lines = [f"- {name}: {count}" for name, count in counted if count]
        return CommandReply("\n".join(["Models by provider; /models NAME lists them.", *lines]))
    if word not in names:
        raise UnknownNameError("provider", one_line(word, 40), closest_names(word, names))
    listed = _allowed(context, context.models.listed(word))
    lines = [f"- {one.ref}{_describe_traits(one)}" for one in listed[:MAX_LISTED]]
    if len(listed) > MAX_LISTED:
        lines.append(f"… and {len(listed) - MAX_LISTED} more: homarus models list")
    return CommandReply(
        "\n".join([f"{len(listed)} models of {word}; /model NAME chooses one.", *lines])
    )


async def find_model(context: AgentCommandContext, name: str) -> ModelInfo:
    """Return the model named by its number in the list, an alias, or a reference."""
    if name.isascii() and name.isdigit():
        listed = {str(number): ref for number, ref in enumerate(await _choices(context), 1)}
        if name not in listed:
            raise UserError(
                f"there is no model {one_line(name, 20)} in the list", fix="/model list"
            )
        name = listed[name]
    return context.models.check_typed(name)


def find_named_model(context: AgentCommandContext, word: str) -> ModelInfo | None:
    """Return the model that a word surely names (an alias, or `provider/model`), or None."""
    config = context.config
    if word.lower() not in aliases(config):
        ref = resolve_model_ref(word, config, "") if "/" in word else None
        if ref is None or ref.provider not in provider_names(config):
            return None
    try:
        return context.models.check(word)
    except UserError:
        return None


async def choose_model(
    context: AgentCommandContext, chosen: ModelInfo, profile: str = ""
) -> tuple[str, dict[str, Json]]:
    """Return the reply and the entry's fields for a chosen model; the default clears them."""
    default = await context.default_model()
    fields = _cleared_fields()
    if default is None or default.ref != chosen.ref:
        fields |= choice_fields(chosen.provider, chosen.id)
    if not profile:
        return f"Model: {chosen.ref}.", fields
    stored = context.models.credentials(context.agent.id).entries(chosen.provider)
    names = [entry.profile.id for entry in stored]
    if profile not in names:
        raise UnknownNameError("auth profile", one_line(profile, 60), closest_names(profile, names))
    fields |= {"authProfileOverride": profile, "authProfileOverrideSource": "user"}
    return f"Model: {chosen.ref}, with {profile} and no other credential.", fields


def _cleared_fields() -> dict[str, Json]:
    names = "authProfileOverride", "authProfileOverrideSource", FALLBACKS_FIELD
    return choice_fields(None, None) | dict.fromkeys(names)


async def _status(context: AgentCommandContext) -> str:
    session, default = await context.session(), await context.default_model()
    lines = [f"Model: {describe_model(session, default)}"]
    if session.model and default:
        lines.append(f"Usual: {default.ref} (/model default goes back to it)")
    if session.model:
        lines.append("When it fails: an error; no other model answers in its place")
    elif context.agent.fallbacks:
        lines.append(f"When it fails: {', '.join(context.agent.fallbacks)}")
    lines.append("/model NAME chooses another for this conversation; /model list shows some.")
    return "\n".join(lines)


def describe_model(session: Session, default: ModelInfo | None) -> str:
    """Return the model of a session as text."""
    with_profile = f", with {session.profile}" if session.profile_locked else ""
    if session.model:
        return f"{session.model} (chosen for this session{with_profile})"
    return default.ref if default else "none can be used"


async def _list(context: AgentCommandContext) -> str:
    session, default = await context.session(), await context.default_model()
    current = session.model or (default.ref if default else "")
    lines = [
        f"{number}. {ref}{' ←' if ref == current else ''}"
        for number, ref in enumerate(await _choices(context), 1)
    ]
    return "\n".join(["Models; /model NUMBER chooses one.", *lines])


async def _choices(context: AgentCommandContext) -> list[str]:
    """Return the configured models; when that is only one, those of its provider."""
    config, agent, default = context.config, context.agent, await context.default_model()
    session = await context.session()
    given = [*config.agents.defaults.models, agent.model, *agent.fallbacks, session.model]
    found = [default] if default else []
    for name in filter(None, given):
        try:
            found.append(context.models.check(name))
        except UserError:
            continue  # only models that can be chosen are offered
    refs = dict.fromkeys(one.ref for one in found)
    if len(refs) < 2 and default:
        others = _allowed(context, context.models.listed(default.provider))
        refs |= dict.fromkeys(one.ref for one in others)
    return list(refs)[:MAX_LISTED]


def _allowed(context: AgentCommandContext, found: Sequence[ModelInfo]) -> list[ModelInfo]:
    allowed = list[ModelInfo]()
    for one in found:
        try:
            context.models.check(one.ref)
        except UserError:
            continue
        allowed.append(one)
    return allowed


def _describe_traits(one: ModelInfo) -> str:
    size = f"{one.window // 1000}k" if one.window >= 1000 else str(one.window)
    traits = [size, *(["thinks"] if one.reasoning else []), *(["sees"] if one.sees_images else [])]
    return f" ({', '.join(traits)})"
