"""`/model` and `/models`: which model answers, which there are, and how another is chosen."""

from collections.abc import Sequence

from homarus.agent.commands.orders import Order, Reply
from homarus.config.refs import aliases, resolve_model_ref
from homarus.core.errors import UnknownName, UserError
from homarus.core.message import Json
from homarus.core.text import nearest, one_line
from homarus.providers.catalog import Model, known_models
from homarus.providers.connect import provider_names
from homarus.sessions.session import Session

MAX_LISTED = 60
_BACK = frozenset({"default", "reset", "clear"})


async def model(order: Order) -> Reply:
    """`/model [name[@profile] | number | list | status | default]`."""
    word = order.word
    if word in {"", "status"}:
        return Reply(await _status(order))
    if word == "list":
        return Reply(await _list(order))
    if word in _BACK:
        usual = await order.usual_model()
        return Reply(f"Model: {usual.ref if usual else 'none'} (the usual one).", _cleared())
    name, _, profile = order.args.strip().partition("@")
    chosen = await find(order, name)
    return Reply(*await choose(order, chosen, profile))


async def models(order: Order) -> Reply:
    """`/models [provider]`: what there is."""
    config = order.config
    names = provider_names(config)
    word = order.word.split(" ", 1)[0]
    if word in {"", "list"}:
        counted = [(name, len(_allowed(order, known_models(config, name)))) for name in names]
        lines = [f"- {name}: {count}" for name, count in counted if count]
        return Reply("\n".join(["Models by provider; /models NAME lists them.", *lines]))
    if word not in names:
        raise UnknownName("provider", one_line(word, 40), nearest(word, names))
    found = _allowed(order, known_models(config, word))
    lines = [f"- {one.ref}{_about(one)}" for one in found[:MAX_LISTED]]
    if len(found) > MAX_LISTED:
        lines.append(f"… and {len(found) - MAX_LISTED} more: homarus models list")
    return Reply("\n".join([f"{len(found)} models of {word}; /model NAME chooses one.", *lines]))


async def find(order: Order, name: str) -> Model:
    """The model a person names: by its number in the list, an alias, or a reference."""
    if name.isascii() and name.isdigit():
        listed = {str(number): ref for number, ref in enumerate(await _choices(order), 1)}
        if name not in listed:
            raise UserError(
                f"there is no model {one_line(name, 20)} in the list", fix="/model list"
            )
        name = listed[name]
    return order.program.models.check(name)


def named(order: Order, word: str) -> Model | None:
    """The model that a word of a sentence names beyond doubt: an alias, or `provider/model`."""
    config = order.config
    if word.lower() not in aliases(config):
        ref = resolve_model_ref(word, config, "") if "/" in word else None
        if ref is None or ref.provider not in provider_names(config):
            return None
    try:
        return order.program.models.check(word)
    except UserError:
        return None


async def choose(order: Order, chosen: Model, profile: str = "") -> tuple[str, dict[str, Json]]:
    """What is said and stored when this model is chosen; the usual one is no choice."""
    usual = await order.usual_model()
    fields = _cleared()
    if usual is None or usual.ref != chosen.ref:
        fields |= {"providerOverride": chosen.provider, "modelOverride": chosen.id}
    if not profile:
        return f"Model: {chosen.ref}.", fields
    held = order.program.models.credentials(order.agent.id).entries(chosen.provider)
    names = [entry.profile.id for entry in held]
    if profile not in names:
        raise UnknownName("auth profile", one_line(profile, 60), nearest(profile, names))
    fields |= {"authProfileOverride": profile, "authProfileOverrideSource": "user"}
    return f"Model: {chosen.ref}, with {profile} and no other credential.", fields


def _cleared() -> dict[str, Json]:
    names = "providerOverride", "modelOverride", "authProfileOverride", "authProfileOverrideSource"
    return dict.fromkeys(names)


async def _status(order: Order) -> str:
    session, usual = await order.session(), await order.usual_model()
    lines = [f"Model: {describe(session, usual)}"]
    if session.model and usual:
        lines.append(f"Usual: {usual.ref} (/model default goes back to it)")
    if order.agent.fallbacks:
        lines.append(f"When it fails: {', '.join(order.agent.fallbacks)}")
    lines.append("/model NAME chooses another for this conversation; /model list shows some.")
    return "\n".join(lines)


def describe(session: Session, usual: Model | None) -> str:
    """What answers a session, and why."""
    with_profile = f", with {session.profile}" if session.profile_locked else ""
    if session.model:
        return f"{session.model} (chosen for this session{with_profile})"
    return usual.ref if usual else "none can be used"


async def _list(order: Order) -> str:
    session, usual = await order.session(), await order.usual_model()
    current = session.model or (usual.ref if usual else "")
    lines = [
        f"{number}. {ref}{' ←' if ref == current else ''}"
        for number, ref in enumerate(await _choices(order), 1)
    ]
    return "\n".join(["Models; /model NUMBER chooses one.", *lines])


async def _choices(order: Order) -> list[str]:
    """Those the configuration names; when it names but one, its provider's."""
    config, agent, usual = order.config, order.agent, await order.usual_model()
    session = await order.session()
    given = [*config.agents.defaults.models, agent.model, *agent.fallbacks, session.model]
    found = [usual] if usual else []
    for name in filter(None, given):
        try:
            found.append(order.program.models.check(name))
        except UserError:
            continue  # what cannot be chosen is not offered
    refs = dict.fromkeys(one.ref for one in found)
    if len(refs) < 2 and usual:
        beside = _allowed(order, known_models(config, usual.provider))
        refs |= dict.fromkeys(one.ref for one in beside)
    return list(refs)[:MAX_LISTED]


def _allowed(order: Order, found: Sequence[Model]) -> list[Model]:
    kept = list[Model]()
    for one in found:
        try:
            order.program.models.check(one.ref)
        except UserError:
            continue
        kept.append(one)
    return kept


def _about(one: Model) -> str:
    size = f"{one.window // 1000}k" if one.window >= 1000 else str(one.window)
    sorts = [size, *(["thinks"] if one.reasoning else []), *(["sees"] if one.sees_images else [])]
    return f" ({', '.join(sorts)})"
