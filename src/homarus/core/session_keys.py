"""Build and parse session keys, and the ids of agents and accounts in them.

A key is text such as `agent:main:main` or `agent:ops:slack:channel:c1:thread:17.1`. It is
lower-case, it starts with its agent, and it is built only here. Keys from outside (a client, a
file, an older version) are converted by `canonical_key`.
"""

import hashlib
import re
import unicodedata
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Literal, NewType, TypeAlias

from homarus.core.channel_traits import UNKNOWN_CHANNEL, ChannelTraits
from homarus.core.errors import UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.text import one_line

SessionKey = NewType("SessionKey", str)
AgentId = NewType("AgentId", str)
AccountId = NewType("AccountId", str)

PeerKind: TypeAlias = Literal["direct", "group", "channel"]
DmScope: TypeAlias = Literal["main", "per-peer", "per-channel-peer", "per-account-channel-peer"]
KeyForm: TypeAlias = Literal["missing", "agent", "legacy_or_alias", "malformed_agent"]

DEFAULT_AGENT = AgentId("main")
DEFAULT_ACCOUNT = AccountId("default")
DEFAULT_MAIN = "main"
GLOBAL_KEY = "global"
LITERAL_KEYS = frozenset({GLOBAL_KEY, "unknown"})  # sessions of no agent
MAX_KEY_CHARS = 512
_MAX_ID_CHARS = 200  # of an id on a service; a longer one is replaced by a hash

_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_NOT_ID = re.compile(r"[^a-z0-9_-]+")
_CRON_RUN = re.compile(r"cron:[^:]+:run:[^:]+")
# Of a request without a session key, and of the presets.
_HOOK_DELIVERY = re.compile(
    r"hook:(?:(?:github:)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|gmail:[0-9a-f]{16})"
)
_AGENT_MODEL = re.compile(rf"(?:openclaw[:/]|agent:)({_ID.pattern})", re.IGNORECASE)
_THREAD_MARKS = (":thread:", ":topic:")
_CHAT_MARKS = frozenset({"direct", "group", "channel"})
_OWN_MARKS = frozenset({"agent", "subagent", "cron", "acp", "hook"})
_MARKED = re.compile(r"~[0-9a-f]{16}\Z")
_BIDI = frozenset("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


@dataclass(frozen=True, slots=True)
class AgentKey:
    """A key split into its agent and the rest."""

    agent: str
    rest: str

    @property
    def key(self) -> SessionKey:
        return SessionKey(f"agent:{self.agent}:{self.rest}")


def check_key(text: str) -> SessionKey:
    """Return the text as a key. Raises UserError if it is too long, empty or misleading."""
    if len(text) > MAX_KEY_CHARS:
        raise UserError(
            f"session key of {len(text)} characters: {one_line(text[:80], 40)}",
            fix=f"use at most {MAX_KEY_CHARS} characters",
        )
    if not text.strip():
        raise UserError("empty session key", fix="name a session, for example agent:main:main")
    for ch in text:
        if _is_misleading(ch):
            raise UserError(
                f"session key {one_line(text[:80], 60)!r} holds the character U+{ord(ch):04X}",
                fix="use printable characters only",
            )
    return SessionKey(text)


def _is_misleading(ch: str) -> bool:
    return ch in _BIDI or unicodedata.category(ch) in {"Cc", "Cs", "Zl", "Zp"}


def normalize_agent_id(text: str | None) -> AgentId:
    """Return an agent's id as keys and folders use it; `main` for an invalid one."""
    return AgentId(_normalize_id(text) or DEFAULT_AGENT)


def normalize_account_id(text: str | None) -> AccountId:
    """Return an account's id as keys use it; `default` for an invalid one."""
    return AccountId(_normalize_id(text) or DEFAULT_ACCOUNT)


def normalize_main_key(text: str | None) -> str:
    """Return the last part of an agent's main key; `main` unless configured."""
    return (text or "").strip().lower() or DEFAULT_MAIN


def _normalize_id(text: str | None) -> str:
    lowered = (text or "").strip().lower()
    if _ID.fullmatch(lowered):
        return lowered
    return _NOT_ID.sub("-", lowered).lstrip("-_").rstrip("-")[:64]


def agent_of_model(model: str | None) -> AgentId | None:
    """Return the agent that a client requests as model `openclaw:<id>` or `agent:<id>`."""
    found = _AGENT_MODEL.fullmatch((model or "").strip())
    return AgentId(found[1].lower()) if found else None


@lru_cache(4_096)
def parse_agent_key(key: str | None) -> AgentKey | None:
    """Return agent and rest of a key in the current form; None for any other text."""
    parts = [part for part in (key or "").strip().split(":") if part]
    if len(parts) < 3 or parts[0] != "agent" or not parts[1].strip():
        return None
    return AgentKey(parts[1].strip(), ":".join(parts[2:]))


def agent_id_of(key: str | None) -> str:
    """Return the agent of a session key; the default agent for a key of another form."""
    parsed = parse_agent_key(key)
    return parsed.agent if parsed else DEFAULT_AGENT


def key_form(key: str | None) -> KeyForm:
    """Return which form a key has."""
    text = (key or "").strip()
    if not text:
        return "missing"
    if parse_agent_key(text):
        return "agent"
    return "malformed_agent" if text.lower().startswith("agent:") else "legacy_or_alias"


def main_key(agent: str, main: str | None = None) -> SessionKey:
    """Return the key of an agent's main session, the default session of direct messages."""
    return check_key(f"agent:{normalize_agent_id(agent)}:{normalize_main_key(main)}")


def global_key(agent: str) -> SessionKey:
    """Return the key of an agent's only session when `session.scope` is `global`.

    It is OpenClaw's `global`; other agents than `main` have their id in it.
    """
    name = normalize_agent_id(agent)
    return SessionKey(GLOBAL_KEY) if name == DEFAULT_AGENT else check_key(f"agent:{name}:global")


def is_main(key: str, agent: str) -> bool:
    """Return whether this is the session of an agent that is always there."""
    return key in {main_key(agent), global_key(agent)}


def peer_key(
    agent: str,
    channel: str,
    kind: PeerKind,
    peer: str,
    *,
    account: str | None = None,
    scope: DmScope = "main",
    main: str | None = None,
    traits: ChannelTraits = UNKNOWN_CHANNEL,
    identity_links: Mapping[str, Collection[str]] | None = None,
) -> SessionKey:
    """Return the key of a chat with a person or a group.

    `traits` are those of the channel. `identity_links` names people by their ids on several
    services, so that one person has one direct session: `{"alice": ["telegram:111",
    "discord:222"]}`.
    """
    channel = channel.strip().lower() or "unknown"
    named = peer.strip().lower()
    start = f"agent:{normalize_agent_id(agent)}"
    peer = peer_id(peer, traits)
    if kind != "direct":
        return check_key(f"{start}:{channel}:{kind}:{peer or 'unknown'}")
    if scope == "main" or not peer:
        return main_key(agent, main)
    peer = _linked_name(channel, named, identity_links or {}) or peer
    match scope:
        case "per-peer":
            return check_key(f"{start}:direct:{peer}")
        case "per-channel-peer":
            return check_key(f"{start}:{channel}:direct:{peer}")
        case "per-account-channel-peer":
            return check_key(f"{start}:{channel}:{normalize_account_id(account)}:direct:{peer}")


def peer_id(text: str, traits: ChannelTraits = UNKNOWN_CHANNEL) -> str:
    """Return the id of a person or group as keys have it: lower-case and unambiguous.

    An id that would be confused with another (`Alice` with `alice`), that could be parsed as more
    than an id (`1:thread:2`), that contains what no key may contain, or that is very long gets a
    suffix: `alice~3bc51062973c458d`. Spellings of one id (`ChannelTraits.canonical_id`) have one
    key.
    """
    if len(text) > _MAX_ID_CHARS or (not text.isprintable() and any(map(_is_misleading, text))):
        shown = "".join(ch for ch in text[:40] if not _is_misleading(ch))
        return _marked(shown.strip().lower().replace(":", "_"), text)
    own = traits.canonical_id(text) or (text.lower() if traits.has_caseless_ids else text)
    plain = own.strip().lower()
    if not plain or (traits.restore_case(plain) == own and not _is_ambiguous(plain)):
        return plain
    return _marked(plain.replace(":", "_") if _is_ambiguous(plain) else plain, own)


def _is_ambiguous(text: str) -> bool:
    return not {"thread", "topic"}.isdisjoint(text.split(":")) or bool(_MARKED.search(text))


def _marked(text: str, original: str) -> str:
    mark = hashlib.sha256(original.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{text}~{mark}"


def cron_key(agent: str, job: str, run: str = "") -> SessionKey:
    """Return the key of a scheduled job's session, or of one run of it."""
    parts = [_marked(_normalize_id(p), p) if _normalize_id(p) != p else p for p in (job, run) if p]
    return check_key(f"agent:{normalize_agent_id(agent)}:cron:{':run:'.join(parts)}")


def _linked_name(channel: str, peer: str, links: Mapping[str, Collection[str]]) -> str:
    wanted = {peer, f"{channel}:{peer}"}
    for name, ids in links.items():
        if name.strip() and any(known.strip().lower() in wanted for known in ids):
            return name.strip().lower()
    return ""


def thread_key(
    base: str,
    thread: str | None,
    *,
    own_chat: bool = False,
    mark: Literal["thread", "topic"] = "thread",
) -> SessionKey:
    """Return the key of a thread in a chat.

    `own_chat`: the service gives a thread its own chat id, so its base is already its key. `mark`
    is the service's word for it.
    """
    thread = (thread or "").strip().lower()
    return check_key(base if own_chat or not thread else f"{base}:{mark}:{thread}")


def thread_parent(key: str | None) -> SessionKey | None:
    """Return the key of the chat that contains a thread or topic; None for other keys."""
    text = (key or "").strip()
    at = max(text.lower().rfind(mark) for mark in _THREAD_MARKS)
    return SessionKey(text[:at].strip()) if at > 0 else None


def is_subagent(key: str | None) -> bool:
    """Return whether an agent opened this session."""
    return _starts(key, "subagent:", bare=True)


def subagent_depth(key: str | None) -> int:
    """Return how many agents are between this session and a person."""
    return f":{(key or '').strip().lower()}".count(":subagent:")


def spawn_depth(key: str | None, stored: object = None) -> int:
    """Return the depth of a sub-agent's session, by its key or by `spawnDepth` of its entry."""
    in_key = subagent_depth(key)
    if not in_key or not isinstance(stored, int) or isinstance(stored, bool):
        return in_key
    return max(in_key, stored)


def run_lane(key: str | None) -> str:
    """Return the lane that the runs of a session share with others."""
    return "subagent" if is_subagent(key) else "main"


def announce_key(child: str, run: str) -> str:
    """Return the idempotency key of a sub-agent's announcement to its parent."""
    return f"announce:v1:{child}:{run}"


def is_cron(key: str | None) -> bool:
    """Return whether a scheduled job owns this session."""
    return _starts(key, "cron:", bare=False)


def is_cron_run(key: str | None) -> bool:
    """Return whether this is one run of a scheduled job."""
    parsed = parse_agent_key(key)
    return bool(parsed and _CRON_RUN.fullmatch(parsed.rest.lower()))


def is_hook(key: str | None) -> bool:
    """Return whether the session is a webhook's, also for look-alike characters in its key."""
    return _starts(unicodedata.normalize("NFKC", key or ""), "hook:", bare=True)


def is_hook_delivery(key: str | None) -> bool:
    """Return whether this is the session of one delivery of a webhook: it names no other one."""
    parsed = parse_agent_key(key)
    return bool(parsed and _HOOK_DELIVERY.fullmatch(parsed.rest.lower()))


def is_acp(key: str | None) -> bool:
    """Return whether an editor uses the session, by the agent client protocol."""
    return _starts(key, "acp:", bare=True)


def _starts(key: str | None, mark: str, *, bare: bool) -> bool:
    if bare and (key or "").strip().lower().startswith(mark):
        return True
    parsed = parse_agent_key(key)
    return bool(parsed and parsed.rest.lower().startswith(mark))


def canonical_key(
    key: str | None,
    agent: str = DEFAULT_AGENT,
    *,
    main: str | None = None,
    channels: Collection[str] = (),
    agents: Collection[str] = (),
) -> SessionKey:
    """Return the key under which a session is stored, for any form of it.

    Empty and `main` mean the agent's main key; a key without its agent gets `agent`; `dm` becomes
    `direct`; `global` and `unknown` are unchanged. Two legacy forms are converted where they are
    unambiguous: `<channel>:<account>:<sender>` for a channel in `channels`, and `<parent>::<agent>`
    for an agent in `agents`.
    """
    if not (key or "").strip():
        return main_key(agent, main)
    text = check_key((key or "").strip()).lower()
    if text == DEFAULT_MAIN:
        return main_key(agent, main)
    if text in LITERAL_KEYS:
        return SessionKey(text)
    parent, mark, child = text.rpartition("::")
    if mark and child in agents and key_form(parent) != "malformed_agent":
        parent_key = canonical_key(parent, agent, main=main, channels=channels, agents=agents)
        return check_key(
            f"agent:{normalize_agent_id(child)}:subagent:{parent_key[len('agent:') :]}"
        )
    if text.startswith("agent:"):
        head, rest = _split_agent(text)
    else:
        head, rest = f"agent:{normalize_agent_id(agent)}:", _read_sender(text, channels)
    stored = check_key(head + _read_dm(rest))
    if not parse_agent_key(stored):
        raise _no_conversation(text)
    return stored


def _no_conversation(text: str) -> UserError:
    return UserError(
        f"session key {one_line(text)!r} names no conversation of an agent",
        fix="write agent:<agent>:<name>, for example agent:main:main",
    )


def _split_agent(text: str) -> tuple[str, str]:
    parsed = parse_agent_key(text)
    # The agent's id becomes a folder name: an invalid one is refused, not corrected.
    if not parsed or not _ID.fullmatch(parsed.agent):
        raise _no_conversation(text)
    head = f"agent:{parsed.agent}:"
    # An id on a service may contain `::` (an IPv6 address), which is kept.
    return head, text[len(head) :] if text.startswith(head) else parsed.rest


def _read_sender(text: str, channels: Collection[str]) -> str:
    parts = text.split(":")
    if len(parts) != 3 or parts[0] not in channels or parts[1] in _CHAT_MARKS | {"dm"}:
        return text
    return f"{parts[0]}:{normalize_account_id(parts[1])}:direct:{parts[2]}"


def _read_dm(rest: str) -> str:
    parts = rest.split(":")
    head = parts[:3]
    if "dm" not in head[: len(parts) - 1] or parts[0] in _OWN_MARKS or _CHAT_MARKS & {*head}:
        return rest
    at = head.index("dm")
    return ":".join([*parts[:at], "direct", *parts[at + 1 :]])


def key_without_agent(key: str | None) -> str | None:
    """Return the key without its agent, as a client of one agent names it."""
    text = (key or "").strip()
    if not text:
        return None
    parsed = parse_agent_key(text)
    return parsed.rest if parsed else text


def channel_of(key: str) -> str:
    """Return the channel in a key; "" when it has none."""
    parsed = parse_agent_key(key)
    parts = (parsed.rest if parsed else key).lower().split(":")
    known = len(parts) > 2 and {"direct", "dm", "group", "channel"} & {*parts[1:3]}
    return parts[0] if known else ""


def chat_type_of(key: str) -> PeerKind:
    """Return the chat type in a key; `direct` when it has none."""
    marks = {*key.lower().split(":")}
    return "group" if "group" in marks else "channel" if "channel" in marks else "direct"
