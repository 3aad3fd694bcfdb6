"""The token that the gateway creates for its owner when no other secret is set.

A gateway without a config creates one with the token in `gateway.auth.token`, where OpenClaw's
clients find it too. A config that exists is not changed: then the token is in a file of its own in
the state directory, readable by the owner alone.
"""

import os
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from homarus.config.json5_document import Value
from homarus.config.load import LoadedConfig, load_config
from homarus.config.paths import Paths
from homarus.config.tree_edit import set_path
from homarus.core.atomic_file import sync_folder, write_synced
from homarus.core.errors import ConflictError, StoreError, UserError
from homarus.gateway.auth import find_secrets
from homarus.store.state_paths import make_private_dir

FILE = "gateway.token"  # in the state directory
_MAX_BYTES = 4 * 1024
_FIX = "remove it: the next start of the gateway creates a new one"


def add_token(tree: dict[str, Value]) -> Value:
    """Return a new config's tree with a new token in `gateway.auth`."""
    auth = {"mode": "token", "token": _make_token()}
    return set_path(tree, ("gateway", "auth"), auth)


def create_config_with_token(
    paths: Paths, env: Mapping[str, str], loaded: LoadedConfig
) -> LoadedConfig:
    """Create the config with a token, if there is no config and no secret; return the one to use.

    Where the file cannot be written, the config stays missing and the token gets its own file.
    """
    auth = loaded.config.gateway.auth
    if loaded.exists or auth.mode is not None or any(find_secrets(auth, loaded.env)):
        return loaded
    if load_token(paths.state):
        return loaded
    from homarus.config.write import write_config

    with suppress(StoreError):
        with suppress(ConflictError):  # another process created it meanwhile
            write_config(paths, env, add_token)
        return load_config(paths, env)
    return loaded


def load_token(state: Path) -> str:
    """Return the token of the file; empty when there is no file. Raises UserError."""
    path = state / FILE
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except FileNotFoundError:
        return ""
    except OSError as exc:
        raise UserError(f"{path} cannot be read: {exc.strerror or exc}", fix=_FIX) from exc
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise UserError(f"{path} is not a file of this user", fix=_FIX)
        if found.st_mode & 0o077:
            raise UserError(
                f"other users can read or change the token in {path}",
                fix=f"{_FIX}; or chmod 600 {path} to keep it",
            )
        token = file.read(_MAX_BYTES).decode("ascii", "replace").strip()
    if len(token) < 16 or not token.isascii():
        raise UserError(f"{path} holds no token", fix=_FIX)
    return token


def load_or_create_token(state: Path) -> str:
    """Return the token of the file, creating it with mode 0600. Raises UserError, StoreError."""
    if token := load_token(state):
        return token
    path = state / FILE
    temporary = path.with_name(f".{FILE}.{os.getpid()}.tmp")
    try:
        make_private_dir(state)
        write_synced(temporary, f"{_make_token()}\n".encode("ascii"))
        _publish(temporary, path)
        sync_folder(state)
    except OSError as exc:
        raise StoreError(
            f"cannot write in the state directory {state}: {exc.strerror or exc}",
            fix="check its permissions and the disk",
        ) from exc
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    return load_token(state)


def _publish(temporary: Path, path: Path) -> None:
    """Give the file its name; of two processes, the first one's token is used."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        return
    except OSError:  # a file system without hard links
        temporary.replace(path)


def _make_token() -> str:
    return secrets.token_hex(24)
