"""Run a registry: open its folder, check who may reach it, and serve it until it is stopped."""

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

from uvicorn import Config, Server

from homarus.core.clock import SystemClock
from homarus.core.errors import UserError
from homarus.core.file_lock import open_lock_file, try_lock
from homarus.core.private_files import make_private_dir
from homarus.gateway.hub_server.hub_folder import HubFolder
from homarus.gateway.hub_server.hub_routes import HubRoutes
from homarus.gateway.hub_server.hub_tokens import HubTokens
from homarus.gateway.origin_policy import is_loopback

DEFAULT_PORT: Final = 18790
MAX_CONNECTIONS: Final = 200


def serve_hub(
    folder: Path, host: str, port: int, public_url: str, on_ready: Callable[[str, HubFolder], None]
) -> None:
    """Serve a folder until a signal ends the process. Raises UserError.

    `on_ready` is called with the address once the port is open.
    """
    make_private_dir(folder)
    descriptor = open_lock_file(folder / ".hub.lock")
    try:
        if not try_lock(descriptor):
            raise UserError(f"{folder} is already served by another process")
        tokens = HubTokens(folder)
        check_bind(host, tokens)
        skills = HubFolder(folder)
        skills.load()
        listening = open_socket(host, port)
        shown = f"[{host}]" if ":" in host else host
        url = f"http://{shown}:{listening.getsockname()[1]}"
        app = HubRoutes(skills, tokens, SystemClock(), public_url.rstrip("/")).app()
        config = Config(
            app,
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            ws="none",
            limit_concurrency=MAX_CONNECTIONS,
            timeout_graceful_shutdown=5,
        )
        on_ready(url, skills)
        Server(config).run(sockets=[listening])
    finally:
        os.close(descriptor)


def check_bind(host: str, tokens: HubTokens) -> None:
    """Raise UserError for an address beyond loopback while no publisher has a token."""
    if not is_loopback(host) and not tokens.has_active():
        raise UserError(
            f"{host} is reached by other machines, and this registry has no token yet",
            fix="homarus hub token add FOLDER HANDLE, or serve on 127.0.0.1",
        )


def open_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises UserError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(128)
    except OSError as exc:
        listening.close()
        text = f"cannot listen on {host} port {port}: {os.strerror(exc.errno or 0)}"
        raise UserError(text, fix="choose another --port") from exc
    return listening
