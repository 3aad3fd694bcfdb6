"""The table of channels and behaviours, with reasons for the cells that cannot run.

The suite (test_channel_suite.py) runs every cell that is not listed here. Those of `PEERS` need an
independent server, and run in the peers tier; those of `SLOW` run in the slow one, but for `BASIC`.
"""

from typing import Final

import pytest

CHANNELS: Final = (
    "telegram", "discord", "slack", "matrix", "irc", "webchat", "terminal", "scripted",
)  # fmt: skip
PEERS: Final = frozenset({"matrix", "irc"})
SLOW: Final = frozenset({"discord", "slack"})  # each gateway imports the library of its service
BASIC: Final = frozenset({"text both ways", "redelivery"})

BEHAVIOURS: Final = frozenset(
    {
        "text both ways", "splitting", "formatting", "redelivery", "slow sends", "refused for now",
        "refused for good", "stranger", "rooms", "hostile markup", "large file", "service restarts",
        "killed before it was kept", "killed", "accepted, then an error",
        "written while away", "position lost", "token revoked", "out of order", "edited",
        "repeated while answered",
        "same id, other text",
    }
)  # fmt: skip

# Services that take a key once, or can be asked: a second try doubles nothing, and an unconfirmed
# reply is never unknown.
ONCE: Final = frozenset({"discord", "slack", "matrix", "scripted"})

_OWN: Final = "the gateway's own: whoever reaches it is the owner, and there are no rooms"
_READ: Final = "nothing is sent: the client reads the conversation itself"
_FILES: Final = "it carries no files"
_ITSELF: Final = "the gateway is the service: there is no other to come back"
_MATRIX: Final = "rows 1 to 14 of the failure matrix are about it"
_GATEWAY: Final = "it is a client of the gateway: it has no service that goes on without it"
_NO_EDITS: Final = "it has no edits"
_ASKS: Final = "a client sees for itself, and asks again: rows 4 to 6 have a test of that"

CANNOT: Final = {
    ("irc", "redelivery"): "a server says everything once, to who is there",
    ("terminal", "redelivery"): "what is typed twice is meant twice",
    ("irc", "refused for now"): "a server refuses for good, or takes it",
    ("matrix", "refused for now"): "Synapse limits by the second; its adapter's tests cover it",
    ("webchat", "slow sends"): _READ,
    ("terminal", "slow sends"): _READ,
    ("webchat", "refused for now"): _READ,
    ("terminal", "refused for now"): _READ,
    ("webchat", "refused for good"): _READ,
    ("terminal", "refused for good"): _READ,
    ("webchat", "accepted, then an error"): _READ,
    ("terminal", "accepted, then an error"): _READ,
    ("scripted", "refused for good"): "it has no rooms; courier tests cover it",
    ("terminal", "stranger"): _OWN,
    ("webchat", "rooms"): _OWN,
    ("terminal", "rooms"): _OWN,
    ("scripted", "rooms"): "it has none",
    ("irc", "large file"): _FILES,
    ("terminal", "large file"): _FILES,
    ("scripted", "large file"): _FILES,
    ("irc", "killed before it was kept"): "nobody says again what was read and not kept",
    ("irc", "written while away"): "a server says everything once, to who is there",
    ("webchat", "written while away"): _GATEWAY,
    ("terminal", "written while away"): _GATEWAY,
    ("irc", "position lost"): "a server has no positions",
    ("webchat", "position lost"): _GATEWAY,
    ("terminal", "position lost"): _GATEWAY,
    ("irc", "token revoked"): "a server checks its password at the connection alone",
    ("webchat", "token revoked"): _GATEWAY,
    ("terminal", "token revoked"): _GATEWAY,
    ("scripted", "token revoked"): "it has no token",
    ("irc", "repeated while answered"): "a server says everything once",
    ("matrix", "repeated while answered"): "Synapse says it again only after a restart",
    ("terminal", "repeated while answered"): "what is typed twice is meant twice",
    ("matrix", "out of order"): "Synapse has one order; rewinding it is in redelivery",
    ("irc", "out of order"): "a server says everything once",
    ("webchat", "out of order"): "the client decides what it sends again",
    ("terminal", "out of order"): "what is typed twice is meant twice",
    ("irc", "edited"): _NO_EDITS,
    ("webchat", "edited"): _NO_EDITS,
    ("terminal", "edited"): _NO_EDITS,
    ("scripted", "edited"): _NO_EDITS,
    ("matrix", "same id, other text"): "an event's id is the hash of its content",
    ("irc", "same id, other text"): "a message has no id there",
    ("webchat", "same id, other text"): "the client's key is its own, and names one request",
    ("terminal", "same id, other text"): "the client's key is its own, and names one request",
    ("webchat", "service restarts"): _ITSELF,
    ("terminal", "service restarts"): _ITSELF,
    ("scripted", "killed before it was kept"): _MATRIX,
    ("scripted", "killed"): _MATRIX,
    ("webchat", "killed before it was kept"): _ASKS,
    ("webchat", "killed"): _ASKS,
    ("terminal", "killed before it was kept"): _ASKS,
    ("terminal", "killed"): _ASKS,
}


def over(behaviour: str) -> pytest.MarkDecorator:
    """Return the harnesses of every channel that shows a behaviour."""
    assert behaviour in BEHAVIOURS
    return pytest.mark.parametrize(
        "stage",
        [
            pytest.param(channel, marks=_tier(channel, behaviour))
            for channel in CHANNELS
            if (channel, behaviour) not in CANNOT
        ],
        indirect=True,
    )


def _tier(channel: str, behaviour: str) -> list[pytest.MarkDecorator]:
    if channel in PEERS:
        return [pytest.mark.peers]
    return [pytest.mark.slow] if channel in SLOW and behaviour not in BASIC else []
