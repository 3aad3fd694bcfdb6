"""Every module that opens a connection is known: it is the guard, or its owner says where to."""

import re
from pathlib import Path
from typing import Final

import homarus

SOURCE: Final = Path(homarus.__file__).parent
OPENS: Final = re.compile(
    r"\bHttpClient\(|\bimport httpx2|\bcreate_connection\(|\bopen_connection\(|urlopen|sock_connect"
    r"|\bcreate_unix_connection\(|websockets\S* import connect|\.connect\(\("
)
# A model or a message cannot choose where these connect to.
KNOWN: Final = {
    "net/bounded_http.py": "MCP servers of the config",
    "net/http_client.py": "the client itself, for the host that its caller gives",
    "net/guarded_fetch.py": "the guard: only to addresses that it has checked",
    "net/guarded_stream.py": "the guard: only to addresses that it has checked",
    "net/allow_proxy.py": "nothing: it reads from a connection that it has accepted",
    "providers/endpoint.py": "model services of the config",
    "providers/default_model.py": "model servers on this machine",
    "providers/oauth.py": "logins of model services",
    "providers/model_discovery.py": "lists of models of services of the config",
    "channels/service_client.py": "chat services of the config",
    "channels/irc/connection.py": "an IRC server of the config",
    "tools/web/service_request.py": "search services and Firecrawl, of the config",
    "gateway/client.py": "a gateway that the command line or the config names",
    "cli/tui/link.py": "nothing: gateway/client.py connects",
    "skills/lint_rules.py": "nothing: the words are in patterns",
    "gateway/machine_addresses.py": "nothing is sent: it asks which address a route has",
}


def test_modules_that_open_connections_are_known() -> None:
    found = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if "testing" not in path.relative_to(SOURCE).parts
        and OPENS.search(path.read_text(encoding="utf-8"))
    }
    assert found == set(KNOWN), "what a model or a message aims goes through guarded_fetch"
