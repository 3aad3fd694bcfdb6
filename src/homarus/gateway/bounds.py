"""Which conversations a caller may name. Pure.

An operator of a personal gateway may name all. Who comes for one agent, or as one person, keeps
to that agent, or to their own conversation with it: a key in a request is a wish, not a right.
"""

from homarus.channels.roster import find_traits
from homarus.core.errors import InvalidRequest
from homarus.core.keys import LITERAL_KEYS, parse_agent_key, peer_id
from homarus.core.text import one_line
from homarus.core.value import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """One agent, one person's direct conversations, or both; empty is no bound."""

    agent: str = ""
    peer: str = ""

    def check(self, key: str) -> None:
        """Refuse a key, as it is stored, that lies outside."""
        parsed = parse_agent_key(key)
        owner = parsed.agent if parsed else ""
        if self.agent and owner != self.agent and key not in LITERAL_KEYS:
            raise InvalidRequest(
                f'agent "{self.agent}" does not match session key agent "{one_line(owner, 64)}"'
            )
        if self.peer and not (parsed and _is_own(parsed.rest, self.peer)):
            raise InvalidRequest(f"session key {one_line(key)!r} is somebody else's")


def _is_own(rest: str, peer: str) -> bool:
    channel, _, own = f":{rest}".rpartition(":direct:")
    return bool(own) and own == peer_id(peer, find_traits(channel.strip(":").partition(":")[0]))
