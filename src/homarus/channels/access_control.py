"""Decide which messages are answered, and with which authority.

    decision = access.check(inbound, route)    # AccessGranted, MessageIgnored or PairingRequired

A message of an unknown sender costs a check of the config and of two small files: nothing of it is
fetched, stored or answered, except with how to be paired. The authority for commands is decided
here too, from ids that the service authenticates and never from what a message claims: text that
the sender did not write (forwarded, by an inline bot, the label of a pressed button) is never a
command. An edit, a reaction and the like are checked by the same rules, and never answered.
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
    may_be_bot,
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
from homarus.store.chat_records import ChatRecord, chat_key
from homarus.store.journal import Journal

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

    reason: str


@dataclass(frozen=True, slots=True)
class PairingRequired:
    """An unknown sender gets a pairing notice. `key` is the same for the same code."""

    text: str
    key: str


AccessDecision: TypeAlias = AccessGranted | MessageIgnored | PairingRequired


class AccessControl:
    """Check messages of all channels. `find_entry` returns a session's record by its key.

    `find_names` returns the names of an agent; without it, the config has them.
    """

    def __init__(
        self,
        config: Callable[[], Config],
        state: Path,
        clock: Clock,
        *,
        find_entry: Callable[[str], Mapping[str, Json]],
        is_command: Callable[[str], bool],
        find_names: Callable[[str], AgentNames] | None = None,
    ) -> None:
        self._config, self._find_entry, self._find_names = config, find_entry, find_names
        self._is_command = is_command
        self._pairings = PairingStore(state, clock, wait_s=_LOCK_WAIT_S)
        self._history, self._mentions, self._loops = (
            GroupHistory(clock),
            MentionMatcher(),
            BotLoopGuard(clock),
        )
        self._warned_config: Config | None = None
        self._notices: OrderedDict[str, str] = OrderedDict()  # notices, and their messages
        self._albums: OrderedDict[tuple[str, ...], None] = OrderedDict()  # answered recently
        self._warned: set[str] = set()

    async def load(self, inbound: Inbound, route: Route, journal: Journal) -> None:
        """Load what is remembered of the chat of a message, with its first one.

        Call it before `check`; `take_changes` returns what the checks changed.
        """
        address, agent = inbound.address, route.agent
        if not self._loops.is_loaded(address):
            self._loops.load(address, await journal.chat_records("turns", chat_key(address)))
        if not is_direct(inbound) and not self._history.is_loaded(agent, address):
            key = chat_key(address, agent)
            self._history.load(agent, address, await journal.chat_records("history", key))

    def take_changes(self) -> tuple[ChatRecord, ...]:
        """Return what is to be stored with the message that was checked last."""
        return (*self._history.take_changes(), *self._loops.take_changes())

    def check(self, inbound: Inbound, route: Route) -> AccessDecision:
        """Return whether a message is answered, and with which authority."""
        config, address = self._config(), inbound.address
        try:
            settings = self._settings(config, address.channel, address.account)
            request = AccessRequest(inbound, route, config, settings)
            decision = self._refuse(request) or self._check_chat(request)
            if isinstance(decision, AccessGranted):
                decision = self._check_loop(request) or self._with_history(request, decision)
        except (ConfigError, StoreError) as exc:
            self._warn(f"messages of {address.channel} are not heard: {exc}")
            return MessageIgnored("the rules could not be read")
        return decision

    def check_event(self, event: Inbound, route: Route) -> Authority | None:
        """Return the authority of the sender of a reaction, edit or the like; None to ignore it.

        It needs no mention, and no unknown sender gets a pairing notice for it.
        """
        config, address = self._config(), event.address
        try:
            settings = self._settings(config, address.channel, address.account)
            request = AccessRequest(event, route, config, settings)
            if self._refuse(request):
                return None
            if is_direct(event):
                return self._direct_authority(request)
            authority = self._group_authority(request, group_of(request))
            return None if isinstance(authority, MessageIgnored) else authority
        except (ConfigError, StoreError) as exc:
            self._warn(f"events of {address.channel} are ignored: {exc}")
            return None

    def amend_history(
        self, inbound: Inbound, route: Route, message_id: str, *, is_deleted: bool
    ) -> None:
        """Change a message of the group history that was edited or deleted."""
        self._history.amend(
            route.agent, inbound.address, message_id, None if is_deleted else inbound
        )

    def on_reply_sent(self, address: Address) -> None:
        """Drop the group history before a reply that was sent."""
        self._history.clear_collected(address)
        self._loops.on_reply_sent(address)

    def _check_chat(self, request: AccessRequest) -> AccessDecision:
        return (
            self._check_direct(request)
            if is_direct(request.inbound)
            else self._check_group(request)
        )

    def _refuse(self, request: AccessRequest) -> MessageIgnored | None:
        """Ignore what is never answered, whoever sent it."""
        metadata = request.inbound.metadata
        if not access.normalize_sender_id(request.channel, request.inbound.sender, find_traits):
            return MessageIgnored("nobody can be told from its sender's id")
        if metadata.is_bot and not may_be_bot(request):
            return MessageIgnored("a program says it, and allowBots is not set")
        return None

    # Direct chats

    def _check_direct(self, request: AccessRequest) -> AccessDecision:
        authority, policy = self._direct_authority(request), request.settings.dm_policy
        if authority is not None:
            return AccessGranted(
                replace(request.inbound, authority=authority), self._ack(request, None)
            )
        if policy == "disabled":
            return MessageIgnored("direct messages are disabled")
        if policy != "pairing":
            return MessageIgnored("its sender is not in allowFrom")
        return self._require_pairing(request)

    def _direct_authority(self, request: AccessRequest) -> Authority | None:
        """Return the authority of the sender of a direct message, None if it is not listed."""
        settings = request.settings
        approved = settings.allow_from
        if settings.dm_policy == "pairing":
            approved += self._pairings.approved_senders(request.channel, request.account)
        if settings.dm_policy == "disabled" or not request.is_allowlisted(approved):
            return None
        return self._authority(request, (AllowlistMatch(is_set=True, has_sender=True),))

    def _require_pairing(self, request: AccessRequest) -> AccessDecision:
        """Return the pairing notice, once per code."""
        inbound = request.inbound
        pairing = self._pairings.get_or_create(inbound)
        if pairing is None:
            self._warn(
                f"more strangers write to {request.channel} than may wait for approval: "
                f"see homarus pairing list {request.channel}"
            )
            return MessageIgnored("too many others wait for approval")
        key = pairing_notice_key(pairing)
        # Offered again because it could not be stored: it gets the same notice.
        if self._notices.setdefault(key, inbound.id) != inbound.id:
            return MessageIgnored("its sender waits for approval")
        while len(self._notices) > _MAX_NOTICES:
            self._notices.popitem(last=False)
        return PairingRequired(pairing_notice_text(pairing), key)

    # Groups

    def _check_group(self, request: AccessRequest) -> AccessDecision:
        group = group_of(request)
        authority = self._group_authority(request, group)
        if isinstance(authority, MessageIgnored):
            return authority
        return self._check_mention(request, group, authority)

    def _group_authority(
        self, request: AccessRequest, group: ResolvedGroup
    ) -> Authority | MessageIgnored:
        """Return the authority of a sender in a group, or why it is ignored."""
        if any(not layer.enabled for layer in group.layers):
            return MessageIgnored("the group is disabled")
        configured_values = (layer.group_policy for layer in group.layers)
        policy = (
            next((each for each in configured_values if each), None)
            or request.settings.group_policy
        )
        people = group_allowlist(request, group, is_open=policy == "open")
        sender_match = (
            None
            if people is None
            else AllowlistMatch(
                is_set=True,
                has_sender=request.is_allowlisted(people.people) or people.has_role(request),
            )
        )
        if not access.is_allowed_in_group(
            policy or "allowlist", sender_match, group=group.match_kind
        ):
            return MessageIgnored("the group or its sender is not listed")
        # Pairing is for direct chats: in a group, a paired sender has no rights.
        return self._authority(request, command_allowlists(request, group))

    def _check_mention(
        self, request: AccessRequest, group: ResolvedGroup, authority: Authority
    ) -> AccessDecision:
        inbound, metadata = request.inbound, request.inbound.metadata
        patterns = self._mentions.patterns(
            request.config, request.route.agent, request.settings, lambda: self._names_of(request)
        )
        # A message that mentions another user by the service's own means is not for us.
        is_named = not metadata.mentions_others and is_mentioned(inbound.text, patterns)
        is_album_part = _album(request) in self._albums  # the first message has the text
        mention = MentionState(
            required=self._requires_mention(request, group),
            detectable=metadata.detects_mentions or bool(patterns),
            mentioned=metadata.mentioned or is_named,
            implied=metadata.replies_to_us or is_album_part,
            elsewhere=metadata.mentions_others,
        )
        text = _command_in(inbound, patterns) if mention.mentioned else inbound.text
        is_command = access.is_unmentioned_command(
            mention,
            is_command=bool(authority) and self._is_command(text),
            may_command=authority in {"owner", "authorised"},
        )
        if access.is_unaddressed(mention) and not is_command:
            self._history.add(request.route.agent, inbound, history_limit(request))
            if not metadata.is_bot:
                self._loops.reset_others(inbound.address)
            return MessageIgnored("it does not speak to us")
        if metadata.album:
            self._albums[_album(request)] = None
            while len(self._albums) > _MAX_NOTICES:
                self._albums.popitem(last=False)
        accepted = replace(inbound, text=text, authority=authority)
        return AccessGranted(
            accepted,
            "" if is_album_part else self._ack(request, mention if not is_command else None),
        )

    def _requires_mention(self, request: AccessRequest, group: ResolvedGroup) -> bool:
        match self._find_entry(request.route.key).get("groupActivation"):
            case "always":
                return False
            case "mention":
                return True
        layers = (group.topic, *group.group_layers)
        settings = (layer.require_mention for layer in layers if layer)
        account = request.settings.require_mention
        return next((each for each in (*settings, account) if each is not None), True)

    # Common to both

    def _authority(self, request: AccessRequest, matches: tuple[AllowlistMatch, ...]) -> Authority:
        """Return the sender's authority; "" when the text is not the sender's own."""
        commands, sender = request.config.commands, request.inbound
        if sender.metadata.is_foreign_text:
            return ""
        owners = AllowlistMatch(
            bool(commands.owner_allow_from), request.is_named(commands.owner_allow_from)
        )
        if commands.allow_from:
            listed = commands.allow_from.get(request.channel, commands.allow_from.get("*", ()))
            may = request.is_allowlisted(listed)
        else:
            uses_groups = commands.use_access_groups
            may = access.may_command(
                (owners, *matches), grouped=uses_groups, otherwise="configured"
            )
        if not may:
            return "stranger"
        if owners.is_set:
            return "owner" if owners.has_sender else "authorised"
        is_owner = is_direct(sender) and request.is_named(request.settings.allow_from)
        return "owner" if is_owner else "authorised"

    def _ack(self, request: AccessRequest, mention: MentionState | None) -> str:
        """Return the ack reaction; `mention` is None where no mention was required."""
        messages = request.config.messages
        is_group = not is_direct(request.inbound)
        addressed = is_group and (mention is None or access.is_addressed(mention))
        due = {
            "all": True,
            "direct": not is_group,
            "group-all": is_group,
            "group-mentions": addressed,
        }[messages.ack_reaction_scope]
        configured_values = (request.settings.ack_reaction, messages.ack_reaction)
        emoji = next((each for each in configured_values if each is not None), None)
        if not due or emoji == "":
            return ""
        return emoji or self._names_of(request).emoji or SEEN

    def _names_of(self, request: AccessRequest) -> AgentNames:
        if self._find_names:
            return self._find_names(request.route.agent)
        return names_from_config(request.config, request.route.agent)

    def _check_loop(self, request: AccessRequest) -> MessageIgnored | None:
        inbound, is_trusted = request.inbound, False
        if is_direct(inbound):
            approved = self._pairings.approved_senders(request.channel, request.account)
            is_trusted = request.is_named(request.settings.allow_from + approved)
        if not self._loops.is_loop(inbound, is_trusted=is_trusted):
            return None
        sender = f"{one_line(inbound.sender)} on {request.channel}"
        self._warn(f"{sender} answers us as fast as we answer them: nothing is said there for now")
        return MessageIgnored("we go round in circles with its sender")

    def _with_history(self, request: AccessRequest, decision: AccessGranted) -> AccessGranted:
        """Add the group history. Last, as a message that is not answered takes none."""
        history = ""
        if not is_direct(request.inbound):
            history = self._history.collect_for(
                request.route.agent, request.inbound, history_limit(request)
            )
        return replace(decision, inbound=replace(decision.inbound, group_history=history))

    def _settings(self, config: Config, channel: str, account: str) -> AccountSettings:
        if self._warned_config is not config:
            self._warned_config = config
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


def _album(request: AccessRequest) -> tuple[str, ...]:
    """Identify messages sent as one album, for one agent and sender."""
    address, inbound = request.inbound.address, request.inbound
    chat = (address.channel, address.account, address.chat, address.thread or "")
    return *chat, inbound.sender, inbound.metadata.album, request.route.agent


def _command_in(inbound: Inbound, patterns: tuple[Search, ...]) -> str:
    """Remove our name before a command: `@molty /status` is one."""
    first, rest = [*inbound.text.split(maxsplit=1), "", ""][:2]
    if not rest.startswith("/"):
        return inbound.text
    looks_like_one = first.startswith("@") or first.endswith((":", ","))
    is_ours = is_mentioned(first, patterns) or (
        looks_like_one and not inbound.metadata.mentions_others
    )
    return rest.strip() if is_ours else inbound.text
