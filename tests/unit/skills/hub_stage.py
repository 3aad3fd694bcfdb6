"""A registry for tests: the real server, in a thread, on a free port of this machine."""

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uvicorn import Config, Server

from homarus.core.clock import SystemClock
from homarus.gateway.hub_server.hub_folder import HubFolder
from homarus.gateway.hub_server.hub_process import open_socket
from homarus.gateway.hub_server.hub_routes import HubRoutes
from homarus.gateway.hub_server.hub_tokens import HubTokens
from homarus.skills.hub.registry_address import RegistryAddress
from homarus.skills.hub.registry_client import Publication, RegistryClient
from homarus.skills.hub.skill_files import SkillFile

HEAD = "---\nname: notes\ndescription: Keeps notes.\n---\n"


@dataclass(frozen=True, slots=True)
class HubStage:
    """A running registry."""

    url: str
    folder: Path
    token: str

    def client(self, token: str | None = None) -> RegistryClient:
        address = RegistryAddress(self.url)
        return RegistryClient(address, token=self.token if token is None else token)

    def request(
        self,
        method: str,
        path: str,
        content: object = None,
        *,
        data: bytes | None = None,
        token: str = "",
    ) -> tuple[int, Any]:
        """Send a request; return its status, and its JSON or text."""
        body = json.dumps(content).encode() if content is not None else data
        asked = urllib.request.Request(self.url + path, body, method=method)
        if token:
            asked.add_header("Authorization", f"Bearer {token}")
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(asked) as response:
                return response.status, _decode(response.read())
        except urllib.error.HTTPError as exc:
            return exc.code, _decode(exc.read())


def _decode(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return data.decode("utf-8", "replace")


def publication(
    version: str = "1.0.0", body: str = "", slug: str = "notes", more: Mapping[str, str] = {}
) -> Publication:
    """Return a version of a skill."""
    texts = {"SKILL.md": HEAD + body, **more}
    files = tuple(SkillFile(path, text.encode()) for path, text in texts.items())
    return Publication(slug, "Notes", version, f"about {version}", files)


@contextmanager
def running_hub(folder: Path) -> Iterator[HubStage]:
    """Serve a folder for the time of a block."""
    tokens = HubTokens(folder)
    _, token = tokens.add("ann")
    skills = HubFolder(folder)
    skills.load()
    listening = open_socket("127.0.0.1", 0)
    app = HubRoutes(skills, tokens, SystemClock()).app()
    server = Server(Config(app, lifespan="off", log_config=None, ws="none", access_log=False))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield HubStage(f"http://127.0.0.1:{listening.getsockname()[1]}", folder, token)
    finally:
        server.should_exit = True
        thread.join()
        listening.close()
