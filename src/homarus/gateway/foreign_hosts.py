"""Record requests that reach the loopback address under another name, for `homarus doctor`.

Such a request comes through a reverse proxy or a tunnel on this machine, or from a web page whose
name was made to resolve to it. It is treated as remote; the record is how the owner gets to know.
"""

import logging
from pathlib import Path

from homarus.core.clock import Clock
from homarus.core.errors import StoreError
from homarus.core.text import one_line
from homarus.gateway.json_file import JsonFile
from homarus.gateway.origin_policy import OriginPolicy, RequestInfo, is_loopback

FILE = "gateway-hosts.json"  # in the state directory
MAX_HOSTS = 8
_MAX_CHARS = 100
log = logging.getLogger(__name__)


class ForeignHostLog:
    """Names under which the loopback address was reached, each recorded once per process."""

    def __init__(self, state: Path, clock: Clock) -> None:
        self._file, self._clock = JsonFile(state / FILE), clock
        self._seen: set[str] = set()

    def record(self, request: RequestInfo, policy: OriginPolicy) -> None:
        """Record the request's name if it is new; a few names are enough for a warning."""
        if policy.is_local(request) or not is_loopback(request.peer):
            return
        if policy.is_trusted_proxy(request.peer) or len(self._seen) >= MAX_HOSTS:
            return
        name = one_line(request.host, _MAX_CHARS) or "(none)"
        if name in self._seen:
            return
        self._seen.add(name)
        log.warning("a request reached the loopback address through a proxy, or as %r", name)
        try:
            hosts = load_foreign_hosts(self._file) | {name: self._clock.now_ms()}
            newest = sorted(hosts, key=lambda host: hosts[host])[-MAX_HOSTS:]
            self._file.write({"hosts": {host: hosts[host] for host in newest}})
        except StoreError as exc:
            log.warning("it was not recorded: %s", exc)


def load_foreign_hosts(file: JsonFile) -> dict[str, int]:
    """Return the recorded names with the time of their last record, in milliseconds."""
    hosts = file.read().get("hosts")
    found = hosts.items() if isinstance(hosts, dict) else ()
    return {name: at_ms for name, at_ms in found if type(at_ms) is int}
