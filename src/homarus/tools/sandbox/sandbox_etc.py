"""The `/etc` of sandboxed commands: what programs need, and nothing about this machine."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from homarus.core.atomic_file import temporary_name, write_synced
from homarus.core.private_files import make_private_dir

# Of this machine's: where libraries and the alternatives of programs are, and public certificates.
ETC_MOUNTS: Final = (
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/pki/tls/certs",
    "/etc/pki/ca-trust/extracted",
    "/etc/ca-certificates/extracted",
    "/etc/mime.types",
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


def write_etc(scratch: Path) -> None:
    """Write the files to `etc` in a folder, and make the places for what is mounted there."""
    folder = scratch / "etc"
    for each in (scratch, folder, scratch / "empty"):
        make_private_dir(each)
    for name, text in _FILES.items():
        _write(folder / name, text)
    for path in ETC_MOUNTS:
        if not os.path.lexists(path):
            continue
        place = scratch / path.lstrip("/")
        make_private_dir(place.parent)
        if Path(path).is_dir():
            make_private_dir(place)
        else:
            _write(place, "")
    zone = os.path.realpath("/etc/localtime")
    if zone.startswith(_ZONES):
        with suppress(FileExistsError):
            (folder / "localtime").symlink_to(zone)


def _write(path: Path, text: str) -> None:
    with suppress(OSError):
        if path.read_text() == text:
            return
    temporary = path.with_name(temporary_name())
    write_synced(temporary, text.encode())
    temporary.replace(path)
