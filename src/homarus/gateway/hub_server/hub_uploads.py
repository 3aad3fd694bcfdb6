"""Files that were uploaded for a version that is not published yet.

A ticket names one file by path, size and hash, for one publisher, for an hour. Files are in memory:
a publisher whose upload was interrupted starts again.
"""

import hashlib
import secrets
from collections import OrderedDict
from dataclasses import replace
from typing import Final

from homarus.core.clock import Clock
from homarus.core.fast_dataclass import dataclass
from homarus.gateway.hub_server.hub_folder import HubRefusalError
from homarus.skills.hub.skill_files import MAX_FILE_BYTES, MAX_FILES, MAX_TOTAL_BYTES

TICKET_S: Final = 3_600.0
MAX_TICKETS: Final = 4 * MAX_FILES
MAX_WAITING_BYTES: Final = 4 * MAX_TOTAL_BYTES


@dataclass(frozen=True, slots=True)
class UploadTicket:
    """A file that may be uploaded, and its content once it was."""

    id: str
    handle: str
    size: int
    sha256: str
    ends_at_s: float
    data: bytes | None = None


class HubUploads:
    """The open tickets."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tickets: OrderedDict[str, UploadTicket] = OrderedDict()

    def open(self, handle: str, size: object, sha256: object) -> UploadTicket:
        """Return a ticket for a file. Raises HubRefusalError."""
        self._expire()
        if not isinstance(size, int) or not 0 <= size <= MAX_FILE_BYTES:
            raise HubRefusalError(f"A file has at most {MAX_FILE_BYTES} bytes", 413)
        if not isinstance(sha256, str) or len(sha256) != 64:
            raise HubRefusalError("sha256 is missing", 400)
        waiting = sum(ticket.size for ticket in self._tickets.values())
        if len(self._tickets) >= MAX_TICKETS or waiting + size > MAX_WAITING_BYTES:
            raise HubRefusalError("Too many uploads wait to be published; try again later", 503)
        ends_at_s = self._clock.monotonic() + TICKET_S
        ticket = UploadTicket(secrets.token_urlsafe(24), handle, size, sha256.lower(), ends_at_s)
        self._tickets[ticket.id] = ticket
        return ticket

    def store(self, ticket_id: str, handle: str, data: bytes) -> None:
        """Store the content of a ticket's file. Raises HubRefusalError if it is another one."""
        ticket = self._find(ticket_id, handle)
        if len(data) != ticket.size or hashlib.sha256(data).hexdigest() != ticket.sha256:
            raise HubRefusalError("The file is not the one that was announced", 400)
        self._tickets[ticket_id] = replace(ticket, data=data)

    def read(self, ticket_id: str, handle: str, sha256: str) -> bytes:
        """Return an uploaded file. Raises HubRefusalError."""
        ticket = self._find(ticket_id, handle)
        if ticket.data is None or ticket.sha256 != sha256.lower():
            raise HubRefusalError("A file was not uploaded, or is another one", 400)
        return ticket.data

    def close(self, ticket_ids: list[str]) -> None:
        """Forget the files of a version that was published."""
        for ticket_id in ticket_ids:
            self._tickets.pop(ticket_id, None)

    def _find(self, ticket_id: str, handle: str) -> UploadTicket:
        self._expire()
        ticket = self._tickets.get(ticket_id)
        if ticket is None or ticket.handle != handle:
            raise HubRefusalError("The upload is not known, or took too long", 404)
        return ticket

    def _expire(self) -> None:
        now_s = self._clock.monotonic()
        while self._tickets and next(iter(self._tickets.values())).ends_at_s < now_s:
            self._tickets.popitem(last=False)
