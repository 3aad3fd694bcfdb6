"""Commands that wait for the answer of a node: a phone or another machine."""

import asyncio
from dataclasses import field
from uuid import uuid4

from homarus.core.errors import UnavailableError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json

MAX_WAITING = 64  # for one node


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """What a node answered to a command."""

    ok: bool
    payload: Json = None
    error: dict[str, Json] = field(default_factory=dict)


class NodeCalls:
    """The commands under way, by an id that only the node is told."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[str, asyncio.Future[NodeAnswer]]] = {}

    def open(self, conn_id: str) -> tuple[str, asyncio.Future[NodeAnswer]]:
        """Return the id of a new command for a connection, and its future answer."""
        if sum(conn == conn_id for conn, _ in self._waiting.values()) >= MAX_WAITING:
            raise UnavailableError(f"more than {MAX_WAITING} commands wait for this node")
        call_id, answer = str(uuid4()), asyncio.get_running_loop().create_future()
        self._waiting[call_id] = (conn_id, answer)
        return call_id, answer

    def close(self, call_id: str) -> None:
        """Forget a command: a later answer to it is ignored."""
        self._waiting.pop(call_id, None)

    def settle(self, conn_id: str, call_id: str, answer: NodeAnswer) -> bool:
        """Record an answer and return whether this connection was asked for it."""
        asked, future = self._waiting.get(call_id, ("", None))
        if future is None or asked != conn_id or future.done():
            return False
        future.set_result(answer)
        return True

    def leave(self, conn_id: str) -> None:
        """Fail the commands of a node that disconnected."""
        for asked, future in self._waiting.values():
            if asked == conn_id and not future.done():
                gone = {"code": "NOT_CONNECTED", "message": "the node disconnected"}
                future.set_result(NodeAnswer(ok=False, error=gone))
