"""Check which sessions a caller may name. Pure.

An operator of a personal gateway may name all. A caller that is bound to one agent, or to one
person, may name only that agent's sessions, or that person's direct sessions.
"""

from homarus.channels.registry import find_traits
from homarus.core.errors import InvalidRequestError
from homarus.core.fast_dataclass import dataclass
from homarus.core.session_keys import LITERAL_KEYS, parse_agent_key, peer_id
from homarus.core.text import one_line


@dataclass(frozen=True, slots=True)
class SessionAccess:
    """The agent and the person that a caller is bound to; empty means unbound."""

    agent: str = ""
    peer: str = ""

    def check(self, key: str) -> None:
        """Raise InvalidRequestError for a stored session key outside of the bounds."""
        parsed = parse_agent_key(key)
        owner = parsed.agent if parsed else ""
        if self.agent and owner != self.agent and key not in LITERAL_KEYS:
            raise InvalidRequestError(
                f'agent "{self.agent}" does not match session key agent "{one_line(owner, 64)}"'
            )
        if self.peer and not (parsed and _is_own(parsed.rest, self.peer)):
            raise InvalidRequestError(f"session key {one_line(key)!r} is somebody else's")


def _is_own(rest: str, peer: str) -> bool:
    channel, _, own = f":{rest}".rpartition(":direct:")
    return bool(own) and own == peer_id(peer, find_traits(channel.strip(":").partition(":")[0]))
