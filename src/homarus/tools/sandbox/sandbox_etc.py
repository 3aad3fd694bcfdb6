"""The `/etc` of sandboxed commands: what programs need, and nothing else about this machine.

It is one folder with copies: every mount makes the start of a command slower.
"""

import hashlib
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

from homarus.core.atomic_file import temporary_name, write_synced
from homarus.core.private_files import make_private_dir

# Where libraries and the alternatives of programs are, and public certificates.
_COPIED: Final = (
    "alternatives",
    "ld.so.cache",
    "ssl/certs",
    "ssl/openssl.cnf",
    "pki/tls/certs",
    "pki/ca-trust/extracted",
    "ca-certificates/extracted",
    "mime.types",
)
_FILES: Final = {
    "passwd": "sandbox:x:1000:1000:sandbox:/tmp/home:/bin/sh\n"
    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "group": "sandbox:x:1000:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost sandbox\n::1 localhost sandbox\n",
    "hostname": "sandbox\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    "resolv.conf": "",
}
_ZONES: Final = "/usr/share/zoneinfo/"


def write_etc(scratch: Path, source: Path = Path("/etc")) -> Path:
    """Return a folder in `scratch` with the files; a new one when those of the machine changed."""
    make_private_dir(scratch)
    stamps = [(name, _stamp(source / name)) for name in (*_COPIED, "localtime")]
    digest = hashlib.sha256(repr([stamps, _FILES]).encode()).hexdigest()[:16]
    folder = scratch / f"etc-{digest}"
    if folder.is_dir():
        return folder
    temporary = scratch / temporary_name()
    try:
        _write_files(temporary, source)
        with suppress(OSError):  # another process was faster
            temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def _write_files(folder: Path, source: Path) -> None:
    make_private_dir(folder)
    for name, text in _FILES.items():
        write_synced(folder / name, text.encode())
    for name in _COPIED:
        _copy(source / name, folder / name)
    zone = os.path.realpath(source / "localtime")
    if zone.startswith(_ZONES):
        (folder / "localtime").symlink_to(zone)


def _stamp(path: Path) -> tuple[int, int] | None:
    with suppress(OSError):
        found = path.stat()
        return found.st_mtime_ns, found.st_ino
    return None


def _copy(source: Path, target: Path) -> None:
    """Copy a file, or a folder of files and links, as far as it can be read."""
    try:
        is_folder = source.is_dir()
        entries = sorted(source.iterdir()) if is_folder else []
        data = source.read_bytes() if not is_folder and source.is_file() else None
    except OSError:
        return  # also a folder above it may be unreadable
    if data is not None:
        make_private_dir(target.parent)
        write_synced(target, data)
    elif is_folder:
        make_private_dir(target)
    for entry in entries:
        if entry.is_symlink():
            with suppress(OSError):
                (target / entry.name).symlink_to(entry.readlink())
        else:
            _copy(entry, target / entry.name)
