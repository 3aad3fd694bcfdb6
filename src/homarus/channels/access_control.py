"""Decide which messages are answered, and with which authority.

    decision = access.check(inbound, route)    # AccessGranted, MessageIgnored or PairingRequired

A message of an unknown sender costs a check of the config and of two small files: nothing of it is
fetched, stored or answered, except with how to be paired. The authority for commands is decided
here too, from ids that the service authenticates and never from what a message claims: forwarded
text is never a command, and an edited message is never answered again.
"""

import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeAlias

from homarus.channels.access_request import (
    AccessRequest,
    command_allowlists,
    group_allowlist,
    group_of,
    history_limit,
    is_direct,
)
from homarus.channels.bot_loops import BotLoopGuard
from homarus.channels.group_history import GroupHistory
from homarus.channels.mentions import (
    AgentNames,
    MentionMatcher,
    is_mentioned,
    names_from_config,
)
from homarus.channels.pairing import TTL_MS, PairingRequest, PairingStore
from homarus.channels.registry import find_traits
from homarus.config.channels import AccountSettings, common_settings
from homarus.config.schema import Config
from homarus.core.channel_traits import channel_title
from homarus.core.clock import Clock
from homarus.core.errors import ConfigError, StoreError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Address, Authority, Inbound, Json
from homarus.core.regex import Search
from homarus.core.session_keys import DEFAULT_ACCOUNT
from homarus.core.text import one_line
from homarus.policy import access
from homarus.policy.access import AllowlistMatch, MentionState
from homarus.policy.group_policy import ResolvedGroup
from homarus.sessions.routing import Route

log = logging.getLogger(__name__)

SEEN: Final = "👀"
_LOCK_WAIT_S: Final = 0.1  # the event loop waits while another process writes a pairing file
_MAX_NOTICES: Final = 1_000


@dataclass(frozen=True, slots=True)
class AccessGranted:
    """The message is answered. `ack` is the emoji of the ack reaction, "" for none."""

    inbound: Inbound
    ack: str = ""


@dataclass(frozen=True, slots=True)
class MessageIgnored:
    """The message is ignored, without a notice."""

    why: str


@dataclass(frozen=True, slots=True)
class PairingRequired:
    """An unknown sender gets a pairing notice. `key` is the same for the same code."""

    text: str
    key: str


AccessDecision: TypeAlias = AccessGranted | MessageIgnored | PairingRequired


class AccessControl:
    """Check messages of all channels. `entry` returns a session's record by its key.

    `called` returns the names of an agent; without it, the config has them.
    """

    def __init__(
        self,
        config: Callable[[], Config],
        state: Path,
        clock: Clock,
        *,
        entry: Callable[[str], Mapping[str, Json]],
        is_command: Callable[[str], bool],
        called: Callable[[str], AgentNames] | None = None,
    ) -> None:
        self._config, self._entry, self._called = config, entry, called
        self._is_command = is_command
        self._pairings = PairingStore(state, clock, wait_s=_LOCK_WAIT_S)
        self._history, self._mentions, self._loops = (
            GroupHistory(),
            MentionMatcher(),
            BotLoopGuard(clock),
        )
        self._warned_of: Config | None = None
        self._notices: OrderedDict[str, str] = OrderedDict()  # notices, and their messages
        self._albums: OrderedDict[tuple[str, ...], None] = OrderedDict()  # answered recently
        self._warned: set[str] = set()

    def check(self, inbound: Inbound, route: Route) -> AccessDecision:
        """Return whether a message is answered, and with which authority."""
        config, address = self._config(), inbound.address
        try:
            settings = self._settings(config, address.channel, address.account)
            case = AccessRequest(inbound, route, config, settings)
            decision = self._refuse(case) or self._check_chat(case)
            if isinstance(decision, AccessGranted):
                decision = self._check_loop(case) or self._with_history(case, decision)
        except (ConfigError, StoreError) as exc:
            self._warn(f"messages of {address.channel} are not heard: {exc}")
            return MessageIgnored("the rules could not be read")
        return decision

    def on_reply_sent(self, address: Address) -> None:
        """Drop the group history before a reply that was sent."""
        self._history.clear_collected(address)
        self._loops.on_reply_sent(address)

    def _check_chat(self, case: AccessRequest) -> AccessDecision:
        return self._check_direct(case) if is_direct(case.inbound) else self._check_group(case)

    def _refuse(self, case: AccessRequest) -> MessageIgnored | None:
        """Ignore what is never answered, whoever sent it."""
        occasion = case.inbound.metadata
        if occasion.is_edit:
            return MessageIgnored("an edit of a message that was judged before")
        if not access.normalize_sender_id(case.channel, case.inbound.sender, find_traits):
            return MessageIgnored("nobody can be told from its sender's id")
        if occasion.is_bot and not case.settings.allow_bots:
            return MessageIgnored("a program says it, and allowBots is not set")
        return None

    # Direct chats

    def _check_direct(self, case: AccessRequest) -> AccessDecision:
        settings = case.settings
        if settings.dm_policy == "disabled":
            return MessageIgnored("direct messages are disabled")
        known = settings.allow_from
        if settings.dm_policy == "pairing":
            known += self._pairings.approved_senders(case.channel, case.account)
        if case.is_allowlisted(known):
            authority = self._authority(case, (AllowlistMatch(is_set=True, has_sender=True),))
            return AccessGranted(replace(case.inbound, authority=authority), self._ack(case, None))
        if settings.dm_policy != "pairing":
            return MessageIgnored("its sender is not in allowFrom")
        return self._challenge(case)

    def _challenge(self, case: AccessRequest) -> AccessDecision:
        """Return the pairing notice, once per code."""
        inbound = case.inbound
        asked = self._pairings.get_or_create(inbound)
        if asked is None:
            self._warn(
                f"more strangers write to {case.channel} than may wait for approval: "
                f"see homarus pairing list {case.channel}"
            )
            return MessageIgnored("too many others wait for approval")
        key = pairing_notice_key(asked)
        # Offered again because it could not be stored: it gets the same notice.
        if self._notices.setdefault(key, inbound.id) != inbound.id:
            return MessageIgnored("its sender waits for approval")
        while len(self._notices) > _MAX_NOTICES:
            self._notices.popitem(last=False)
        return PairingRequired(pairing_notice_text(asked), key)

    # Groups

    def _check_group(self, case: AccessRequest) -> AccessDecision:
        room = group_of(case)
        if any(not layer.enabled for layer in room.layers):
            return MessageIgnored("the group is disabled")
        own = (layer.group_policy for layer in room.layers)
        policy = next((each for each in own if each), None) or case.settings.group_policy
        people = group_allowlist(case, room, is_open=policy == "open")
        roll = (
            None
            if people is None
            else AllowlistMatch(is_set=True, has_sender=case.is_allowlisted(people))
        )
        if not access.is_allowed_in_group(policy or "allowlist", roll, group=room.match_kind):
            return MessageIgnored("the group or its sender is not listed")
        # Pairing is for direct chats: in a group, a paired sender has no rights.
        authority = self._authority(case, command_allowlists(case, room))
        return self._check_mention(case, room, authority)

    def _check_mention(
        self, case: AccessRequest, room: ResolvedGroup, authority: Authority
    ) -> AccessDecision:
        inbound, occasion = case.inbound, case.inbound.metadata
        patterns = self._mentions.patterns(
            case.config, case.route.agent, case.settings, lambda: self._names_of(case)
        )
        # A message that mentions another user by the service's own means is not for us.
        called = not occasion.mentions_others and is_mentioned(inbound.text, patterns)
        is_album_part = _album(case) in self._albums  # the first message has the text
        mention = MentionState(
            required=self._requires_mention(case, room),
            detectable=occasion.detects_mentions or bool(patterns),
            mentioned=occasion.mentioned or called,
            implied=occasion.replies_to_us or is_album_part,
            elsewhere=occasion.mentions_others,
        )
        text = _command_in(inbound, patterns) if mention.mentioned else inbound.text
        ordered = access.is_unmentioned_command(
            mention,
            is_command=bool(authority) and self._is_command(text),
            may_command=authority in {"owner", "authorised"},
        )
        if access.is_unaddressed(mention) and not ordered:
            self._history.add(case.route.agent, inbound, history_limit(case))
            if not occasion.is_bot:
                self._loops.reset_others(inbound.address)
            return MessageIgnored("it does not speak to us")
        if occasion.album:
            self._albums[_album(case)] = None
            while len(self._albums) > _MAX_NOTICES:
                self._albums.popitem(last=False)
        heard = replace(inbound, text=text, authority=authority)
        return AccessGranted(
            heard, "" if is_album_part else self._ack(case, mention if not ordered else None)
        )

    def _requires_mention(self, case: AccessRequest, room: ResolvedGroup) -> bool:
        match self._entry(case.route.key).get("groupActivation"):
            case "always":
                return False
            case "mention":
                return True
        layers = (room.topic, room.group, room.wildcard)
        asked = (layer.require_mention for layer in layers if layer)
        return next((each for each in asked if each is not None), True)

    # Common to both

    def _authority(self, case: AccessRequest, rolls: tuple[AllowlistMatch, ...]) -> Authority:
        """Return the sender's authority; "" when the text is not the sender's own."""
        commands, sender = case.config.commands, case.inbound
        if sender.metadata.forwarded:
            return ""
        owners = AllowlistMatch(
            bool(commands.owner_allow_from), case.is_named(commands.owner_allow_from)
        )
        if commands.allow_from:
            listed = commands.allow_from.get(case.channel, commands.allow_from.get("*", ()))
            may = case.is_allowlisted(listed)
        else:
            grouped = commands.use_access_groups
            may = access.may_command((owners, *rolls), grouped=grouped, otherwise="configured")
        if not may:
            return "stranger"
        if owners.is_set:
            return "owner" if owners.has_sender else "authorised"
        is_owner = is_direct(sender) and case.is_named(case.settings.allow_from)
        return "owner" if is_owner else "authorised"

    def _ack(self, case: AccessRequest, mention: MentionState | None) -> str:
        """Return the ack reaction; `mention` is None where no mention was required."""
        messages = case.config.messages
        is_group = not is_direct(case.inbound)
        addressed = is_group and (mention is None or access.is_addressed(mention))
        due = {
            "all": True,
            "direct": not is_group,
            "group-all": is_group,
            "group-mentions": addressed,
        }[messages.ack_reaction_scope]
        own = (case.settings.ack_reaction, messages.ack_reaction)
        emoji = next((each for each in own if each is not None), None)
        if not due or emoji == "":
            return ""
        return emoji or self._names_of(case).emoji or SEEN

    def _names_of(self, case: AccessRequest) -> AgentNames:
        if self._called:
            return self._called(case.route.agent)
        return names_from_config(case.config, case.route.agent)

    def _check_loop(self, case: AccessRequest) -> MessageIgnored | None:
        inbound, is_trusted = case.inbound, False
        if is_direct(inbound):
            known = self._pairings.approved_senders(case.channel, case.account)
            is_trusted = case.is_named(case.settings.allow_from + known)
        if not self._loops.is_loop(inbound, is_trusted=is_trusted):
            return None
        where = f"{one_line(inbound.sender)} on {case.channel}"
        self._warn(f"{where} answers us as fast as we answer them: nothing is said there for now")
        return MessageIgnored("we go round in circles with its sender")

    def _with_history(self, case: AccessRequest, decision: AccessGranted) -> AccessGranted:
        """Add the group history. Last, as a message that is not answered takes none."""
        said = ""
        if not is_direct(case.inbound):
            said = self._history.collect_for(case.route.agent, case.inbound, history_limit(case))
        return replace(decision, inbound=replace(decision.inbound, group_history=said))

    def _settings(self, config: Config, channel: str, account: str) -> AccountSettings:
        if self._warned_of is not config:
            self._warned_of = config
            self._warned.clear()
        settings = common_settings(config, channel, account)
        if access.EVERYONE in settings.allow_from:
            self._warn(f"everybody may talk to {channel}: its allowFrom has a *")
        return settings

    def _warn(self, text: str) -> None:
        if len(self._warned) < _MAX_NOTICES and text not in self._warned:
            self._warned.add(text)
            log.warning("%s", text)


def pairing_notice_key(request: PairingRequest) -> str:
    """Return the idempotency key of a pairing notice; it does not contain the code."""
    identity = f"{request.channel}\0{request.account}\0{request.id}\0{request.code}"
    return f"pairing:{request.channel}:{hashlib.sha256(identity.encode()).hexdigest()[:16]}"


def pairing_notice_text(request: PairingRequest) -> str:
    """Return the pairing notice, in markdown."""
    account = "" if request.account == DEFAULT_ACCOUNT else f" --account {request.account}"
    shown = one_line(request.id, 200).replace("`", "'")
    return (
        "I do not know you yet, so I cannot answer.\n\n"
        f"Your {channel_title(request.channel, find_traits(request.channel))} id: `{shown}`\n"
        f"Your code: `{request.code}`\n\n"
        "Whoever runs me can let you in with:\n\n"
        f"`homarus pairing approve {request.channel} {request.code}{account}`\n\n"
        f"The code is good for {TTL_MS // 60_000} minutes."
    )


def _album(case: AccessRequest) -> tuple[str, ...]:
    """Identify messages sent as one album, for one agent and sender."""
    where, inbound = case.inbound.address, case.inbound
    place = (where.channel, where.account, where.chat, where.thread or "")
    return *place, inbound.sender, inbound.metadata.album, case.route.agent


def _command_in(inbound: Inbound, patterns: tuple[Search, ...]) -> str:
    """Remove our name before a command: `@molty /status` is one."""
    first, _, rest = inbound.text.strip().partition(" ")
    if not rest.lstrip().startswith("/"):
        return inbound.text
    looks_like_one = first.startswith("@") or first.endswith((":", ","))
    is_ours = is_mentioned(first, patterns) or (
        looks_like_one and not inbound.metadata.mentions_others
    )
    return rest.strip() if is_ours else inbound.text
