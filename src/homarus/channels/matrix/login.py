"""Log in by token, or once by user name and password.

A transaction id is idempotent per device. So the device that a password login created is saved with
its token (`<state>/credentials/matrix/<account>.json`, mode 0600), and reused when the token must
be replaced.
"""

import asyncio
import json
import logging
import re
from pathlib import Path
from typing import Final

from homarus.channels.matrix.api import HomeserverClient, MatrixRefusedError, Object, get_str
from homarus.channels.matrix.settings import MatrixSettings
from homarus.config.paths import openclaw_files_dir
from homarus.core.atomic_file import write_atomic
from homarus.core.errors import ChannelAuthError, ChannelError, StoreError
from homarus.core.private_files import make_private_dir

log = logging.getLogger(__name__)

MAX_BYTES: Final = 64 * 1024


class Login:
    """The login of one account; `state` is where its device is saved.

    `device` is the device of the current token, after `sign_in`.
    """

    def __init__(self, settings: MatrixSettings, account: str, state: Path | None) -> None:
        self._settings, self.device = settings, ""
        name = re.sub(r"[^a-z0-9_-]", "_", account)
        folder = openclaw_files_dir(state) / "credentials" / "matrix" if state else None
        self._file = folder / f"{name}.json" if folder else None

    async def sign_in(self) -> tuple[HomeserverClient, str]:
        """Return a logged-in homeserver client and our user id.

        Raises ChannelAuthError when the homeserver refuses us.
        """
        if secret := self._settings.access_token:
            return await self._open_client(secret.get_secret_value(), renewable=False)
        stored = await asyncio.to_thread(self._read)
        if token := get_str(stored, "accessToken"):
            try:
                return await self._open_client(token, renewable=True)
            except ChannelAuthError:
                log.info("the token of %s is no longer good: signing in anew", self._me)
        login = await self._request_token(get_str(stored, "deviceId"))
        await asyncio.to_thread(self._write, login)
        return await self._open_client(login["accessToken"], renewable=True)

    async def replace_device(self) -> bool:
        """Forget the saved device, so that the next login makes a new one; False if it cannot."""
        if self._settings.access_token or self._settings.device_id or self._file is None:
            return False
        await asyncio.to_thread(self._file.unlink, missing_ok=True)
        return True

    async def _open_client(self, token: str, *, renewable: bool) -> tuple[HomeserverClient, str]:
        server = self._server(token)
        try:
            identity = await server.get("account", "whoami")
            me, self.device = get_str(identity, "user_id"), get_str(identity, "device_id")
        finally:
            await server.close()
        if not me:
            raise ChannelError("Matrix did not say who we are")
        if self._me not in {"", me}:
            raise ChannelAuthError(
                f"the token is one of {me}, and the config says {self._me}",
                fix="make userId and accessToken of the same account",
            )
        return self._server(token, renewable=renewable), me

    async def _request_token(self, device: str) -> dict[str, str]:
        settings = self._settings
        request = {
            "type": "m.login.password",
            "identifier": {"type": "m.id.user", "user": self._me},
            "password": settings.password.get_secret_value() if settings.password else "",
            "initial_device_display_name": settings.device_name,
        }
        if device := device or settings.device_id or "":
            request["device_id"] = device
        server = self._server()
        try:
            login = await server.post("login", data=request)
        except MatrixRefusedError as exc:
            raise ChannelAuthError(
                f"{self._me} cannot sign in: {exc.message}", fix="check userId and password"
            ) from exc
        finally:
            await server.close()
        token = get_str(login, "access_token")
        if not token:
            raise ChannelError("Matrix let us in without a token")
        return {
            "homeserver": self._url,
            "userId": self._me,
            "accessToken": token,
            "deviceId": get_str(login, "device_id"),
        }

    def _server(self, token: str = "", *, renewable: bool = False) -> HomeserverClient:
        proxy = self._settings.proxy or ""
        return HomeserverClient(self._url, token, proxy=proxy, renewable=renewable)

    @property
    def _url(self) -> str:
        return self._settings.homeserver or ""

    @property
    def _me(self) -> str:
        return self._settings.user_id or ""

    def _read(self) -> Object:
        """Return the saved device of this account; nothing if it is unreadable."""
        if self._file is None:
            return {}
        try:
            with self._file.open("rb") as opened:
                stored = json.loads(opened.read(MAX_BYTES))
        except (OSError, ValueError, RecursionError):
            return {}
        mine = {"homeserver": self._url, "userId": self._me}
        is_mine = isinstance(stored, dict) and all(stored.get(key) == mine[key] for key in mine)
        return stored if is_mine else {}

    def _write(self, login: dict[str, str]) -> None:
        if self._file is None:
            return
        try:
            make_private_dir(self._file.parent)
            write_atomic(self._file, json.dumps(login, indent=2).encode())
        except OSError as exc:
            raise StoreError(
                f"cannot keep the token of Matrix in {self._file}: {exc.strerror or exc}",
                fix="check the owner and permissions of its folder",
            ) from exc
