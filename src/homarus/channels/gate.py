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

from homarus.channels.history import History
from homarus.channels.loops import Loops
from homarus.channels.mentions import (
    Called,
    Mentions,
    called_by_config,
    is_called,
)
from homarus.channels.pairing import TTL_MS, Pairings, Request
from homarus.channels.rooms import (
    Case,
    group_rolls,
    history_limit,
    is_direct,
    people_of,
    room_of,
)
from homarus.channels.roster import find_traits
from homarus.config.channels import AccountSettings, common
from homarus.config.schema import Config
from homarus.core.channel_traits import channel_title
from homarus.core.clock import Clock
from homarus.core.errors import ConfigError, StoreError
from homarus.core.keys import DEFAULT_ACCOUNT
from homarus.core.message import Address, Authority, Inbound, Json
from homarus.core.regex import Search
from homarus.core.text import one_line
from homarus.core.value import dataclass
from homarus.policy import access
from homarus.policy.access import Mention, Roll
from homarus.policy.room import Room
from homarus.sessions.routing import Route

log = logging.getLogger(__name__)

SEEN: Final = "👀"
_LOCK_WAIT_S: Final = 0.1  # the event loop waits while another process writes a pairing file
_MAX_NOTICES: Final = 1_000


@dataclass(frozen=True, slots=True)
class Admitted:
    """The message is answered. `ack` is the emoji of the ack reaction, "" for none."""

    inbound: Inbound
    ack: str = ""


@dataclass(frozen=True, slots=True)
class PassedOver:
    """The message is ignored, without a notice."""

    why: str


@dataclass(frozen=True, slots=True)
class Challenged:
    """An unknown sender gets a pairing notice. `key` is the same for the same code."""

    text: str
    key: str


Verdict: TypeAlias = Admitted | PassedOver | Challenged


class Gate:
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
        called: Callable[[str], Called] | None = None,
    ) -> None:
        self._config, self._entry, self._called = config, entry, called
        self._is_command = is_command
        self._pairings = Pairings(state, clock, wait_s=_LOCK_WAIT_S)
        self._history, self._mentions, self._loops = History(), Mentions(), Loops(clock)
        self._warned_of: Config | None = None
        self._notices: OrderedDict[str, str] = OrderedDict()  # notices, and their messages
        self._albums: OrderedDict[tuple[str, ...], None] = OrderedDict()  # answered recently
        self._warned: set[str] = set()

    def judge(self, inbound: Inbound, route: Route) -> Verdict:
        """Return whether a message is answered, and with which authority."""
        config, address = self._config(), inbound.address
        try:
            settings = self._settings(config, address.channel, address.account)
            case = Case(inbound, route, config, settings)
            decision = self._refuse(case) or self._check_chat(case)
            if isinstance(decision, Admitted):
                decision = self._check_loop(case) or self._with_history(case, decision)
        except (ConfigError, StoreError) as exc:
            self._warn(f"messages of {address.channel} are not heard: {exc}")
            return PassedOver("the rules could not be read")
        return decision

    def answered(self, address: Address) -> None:
        """Drop the group history before a reply that was sent."""
        self._history.spend(address)
        self._loops.answered(address)

    def _check_chat(self, case: Case) -> Verdict:
        return self._check_direct(case) if is_direct(case.inbound) else self._check_group(case)

    def _refuse(self, case: Case) -> PassedOver | None:
        """Ignore what is never answered, whoever sent it."""
        occasion = case.inbound.occasion
        if occasion.is_edit:
            return PassedOver("an edit of a message that was judged before")
        if not access.person_id(case.channel, case.inbound.sender, find_traits):
            return PassedOver("nobody can be told from its sender's id")
        if occasion.is_bot and not case.settings.allow_bots:
            return PassedOver("a program says it, and allowBots is not set")
        return None

    # Direct chats

    def _check_direct(self, case: Case) -> Verdict:
        settings = case.settings
        if settings.dm_policy == "disabled":
            return PassedOver("direct messages are disabled")
        known = settings.allow_from
        if settings.dm_policy == "pairing":
            known += self._pairings.allowed(case.channel, case.account)
        if case.on(known):
            authority = self._authority(case, (Roll(is_set=True, has_sender=True),))
            return Admitted(replace(case.inbound, authority=authority), self._ack(case, None))
        if settings.dm_policy != "pairing":
            return PassedOver("its sender is not in allowFrom")
        return self._challenge(case)

    def _challenge(self, case: Case) -> Verdict:
        """Return the pairing notice, once per code."""
        inbound = case.inbound
        asked = self._pairings.ask(inbound)
        if asked is None:
            self._warn(
                f"more strangers write to {case.channel} than may wait for approval: "
                f"see homarus pairing list {case.channel}"
            )
            return PassedOver("too many others wait for approval")
        key = challenge_key(asked)
        # Offered again because it could not be stored: it gets the same notice.
        if self._notices.setdefault(key, inbound.id) != inbound.id:
            return PassedOver("its sender waits for approval")
        while len(self._notices) > _MAX_NOTICES:
            self._notices.popitem(last=False)
        return Challenged(challenge_text(asked), key)

    # Groups

    def _check_group(self, case: Case) -> Verdict:
        room = room_of(case)
        if any(not layer.enabled for layer in room.layers):
            return PassedOver("the group is disabled")
        own = (layer.group_policy for layer in room.layers)
        policy = next((each for each in own if each), None) or case.settings.group_policy
        people = people_of(case, room, is_open=policy == "open")
        roll = None if people is None else Roll(is_set=True, has_sender=case.on(people))
        if not access.is_heard_in_group(policy or "allowlist", roll, group=room.named):
            return PassedOver("the group or its sender is not listed")
        # Pairing is for direct chats: in a group, a paired sender has no rights.
        authority = self._authority(case, group_rolls(case, room))
        return self._check_mention(case, room, authority)

    def _check_mention(self, case: Case, room: Room, authority: Authority) -> Verdict:
        inbound, occasion = case.inbound, case.inbound.occasion
        patterns = self._mentions.patterns(
            case.config, case.route.agent, case.settings, lambda: self._names_of(case)
        )
        # A message that mentions another user by the service's own means is not for us.
        called = not occasion.elsewhere and is_called(inbound.text, patterns)
        is_album_part = _album(case) in self._albums  # the first message has the text
        mention = Mention(
            required=self._requires_mention(case, room),
            detectable=occasion.detects or bool(patterns),
            mentioned=occasion.mentioned or called,
            implied=occasion.answers_us or is_album_part,
            elsewhere=occasion.elsewhere,
        )
        text = _command_in(inbound, patterns) if mention.mentioned else inbound.text
        ordered = access.is_order(
            mention,
            is_command=bool(authority) and self._is_command(text),
            may_command=authority in {"owner", "authorised"},
        )
        if access.is_passed_over(mention) and not ordered:
            self._history.remember(case.route.agent, inbound, history_limit(case))
            if not occasion.is_bot:
                self._loops.person_spoke(inbound.address)
            return PassedOver("it does not speak to us")
        if occasion.album:
            self._albums[_album(case)] = None
            while len(self._albums) > _MAX_NOTICES:
                self._albums.popitem(last=False)
        heard = replace(inbound, text=text, authority=authority)
        return Admitted(
            heard, "" if is_album_part else self._ack(case, mention if not ordered else None)
        )

    def _requires_mention(self, case: Case, room: Room) -> bool:
        match self._entry(case.route.key).get("groupActivation"):
            case "always":
                return False
            case "mention":
                return True
        layers = (room.topic, room.group, room.usual)
        asked = (layer.require_mention for layer in layers if layer)
        return next((each for each in asked if each is not None), True)

    # Common to both

    def _authority(self, case: Case, rolls: tuple[Roll, ...]) -> Authority:
        """Return the sender's authority; "" when the text is not the sender's own."""
        commands, sender = case.config.commands, case.inbound
        if sender.occasion.forwarded:
            return ""
        owners = Roll(bool(commands.owner_allow_from), case.named_on(commands.owner_allow_from))
        if commands.allow_from:
            listed = commands.allow_from.get(case.channel, commands.allow_from.get("*", ()))
            may = case.on(listed)
        else:
            grouped = commands.use_access_groups
            may = access.may_command((owners, *rolls), grouped=grouped, otherwise="configured")
        if not may:
            return "stranger"
        if owners.is_set:
            return "owner" if owners.has_sender else "authorised"
        is_owner = is_direct(sender) and case.named_on(case.settings.allow_from)
        return "owner" if is_owner else "authorised"

    def _ack(self, case: Case, mention: Mention | None) -> str:
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

    def _names_of(self, case: Case) -> Called:
        if self._called:
            return self._called(case.route.agent)
        return called_by_config(case.config, case.route.agent)

    def _check_loop(self, case: Case) -> PassedOver | None:
        inbound, is_trusted = case.inbound, False
        if is_direct(inbound):
            known = self._pairings.allowed(case.channel, case.account)
            is_trusted = case.named_on(case.settings.allow_from + known)
        if not self._loops.turns(inbound, is_trusted=is_trusted):
            return None
        where = f"{one_line(inbound.sender)} on {case.channel}"
        self._warn(f"{where} answers us as fast as we answer them: nothing is said there for now")
        return PassedOver("we go round in circles with its sender")

    def _with_history(self, case: Case, decision: Admitted) -> Admitted:
        """Add the group history. Last, as a message that is not answered takes none."""
        said = ""
        if not is_direct(case.inbound):
            said = self._history.take(case.route.agent, case.inbound, history_limit(case))
        return replace(decision, inbound=replace(decision.inbound, before=said))

    def _settings(self, config: Config, channel: str, account: str) -> AccountSettings:
        if self._warned_of is not config:
            self._warned_of = config
            self._warned.clear()
        settings = common(config, channel, account)
        if access.EVERYONE in settings.allow_from:
            self._warn(f"everybody may talk to {channel}: its allowFrom has a *")
        return settings

    def _warn(self, text: str) -> None:
        if len(self._warned) < _MAX_NOTICES and text not in self._warned:
            self._warned.add(text)
            log.warning("%s", text)


def challenge_key(request: Request) -> str:
    """Return the idempotency key of a pairing notice; it does not contain the code."""
    identity = f"{request.channel}\0{request.account}\0{request.id}\0{request.code}"
    return f"pairing:{request.channel}:{hashlib.sha256(identity.encode()).hexdigest()[:16]}"


def challenge_text(request: Request) -> str:
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


def _album(case: Case) -> tuple[str, ...]:
    """Identify messages sent as one album, for one agent and sender."""
    where, inbound = case.inbound.address, case.inbound
    place = (where.channel, where.account, where.chat, where.thread or "")
    return *place, inbound.sender, inbound.occasion.album, case.route.agent


def _command_in(inbound: Inbound, patterns: tuple[Search, ...]) -> str:
    """Remove our name before a command: `@molty /status` is one."""
    first, _, rest = inbound.text.strip().partition(" ")
    if not rest.lstrip().startswith("/"):
        return inbound.text
    looks_like_one = first.startswith("@") or first.endswith((":", ","))
    is_ours = is_called(first, patterns) or (looks_like_one and not inbound.occasion.elsewhere)
    return rest.strip() if is_ours else inbound.text
