"""`zip_slip`: archives of skills, through the reader, the check and the installer.

An archive that is rejected leaves nothing behind; one that is accepted has written regular files
below its own folder and nothing else, and has run nothing.
"""

import io
import json
import stat
import struct
import tarfile
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from homarus.core.errors import UserError
from homarus.skills.hub.archive import read_archive
from homarus.skills.hub.installer import SkillInstaller
from homarus.skills.hub.prepared_skill import prepare_local
from tests.attacks.cases import Case, Judge

HEAD = "---\nname: notes\ndescription: Keeps notes.\n---\n"
SKILL = ("skill/SKILL.md", HEAD.encode())
SLUG = "notes"
Entry = tuple[str, bytes]


@contextmanager
def world() -> Iterator[Judge]:
    """Yield a judge that installs archives below an own folder."""
    with tempfile.TemporaryDirectory() as top:
        yield lambda case: _judge(case, Path(top))


def _judge(case: Case, top: Path) -> str:
    if case["format"] == "structure":
        made = STRUCTURES[case["id"]]()
        return "; ".join(filter(None, (_try(case, top, data) for data in made)))
    entries = [SKILL] if case["entry"] == SKILL[0] else [SKILL, (case["entry"], b"x")]
    archives = (make_zip(entries), make_tar(entries), make_tar(entries, "w:gz"))
    return "; ".join(filter(None, (_try(case, top, data) for data in archives)))


def _try(case: Case, top: Path, data: bytes) -> str:
    """Install an archive, and return what is wrong with the outcome."""
    with tempfile.TemporaryDirectory(dir=top) as place:
        root = Path(place, "inner", "workspace")
        root.mkdir(parents=True)
        file = Path(place, "skill.zip")
        file.write_bytes(data)
        error = _install(root, file)
        written = {path for path in Path(place).rglob("*") if not path.is_dir()} - {file}
        harm = _find_harm(root, written)
        if harm:
            return harm
        if case["expected"] == "accept":
            return f"refused: {error}" if error else _missing(root, case["entry"])
        if case["expected"] == "reject_archive" and not error:
            return "accepted"
        return f"left {sorted(map(str, written))}" if error and written else ""


def _install(root: Path, file: Path) -> str:
    """Install as the command does; return why it is refused."""
    try:
        prepared = prepare_local(file)
        if prepared.report.blocks:
            return prepared.report.blocks[0].message
        installer = SkillInstaller(root)
        with installer.changing():
            installer.install(prepared.slug, prepared.files)
    except UserError as exc:
        return exc.message
    return ""


def _find_harm(root: Path, written: set[Path]) -> str:
    skills, own = root / "skills", root / ".clawhub"
    for path in written:
        mode = path.lstat().st_mode
        if not path.is_relative_to(skills) and not path.is_relative_to(own):
            return f"wrote {path}"
        if not stat.S_ISREG(mode):
            return f"{path.name} is not a file"
        if mode & (stat.S_ISUID | stat.S_ISGID | 0o111):
            return f"{path.name} can be executed"
        if path.is_relative_to(skills) and not _is_slug(path.relative_to(skills).parts[0]):
            return f"it is in the folder {path.relative_to(skills).parts[0]}"
    return ""


def _is_slug(name: str) -> bool:
    return name.replace("-", "").isalnum() and name == name.lower()


def _missing(root: Path, entry: str) -> str:
    path = root / "skills" / SLUG / entry.removeprefix("skill/")
    return "" if path.is_file() else f"{entry} is missing"


def make_zip(entries: Sequence[Entry], edit: Callable[[zipfile.ZipInfo], object] = id) -> bytes:
    """Make a zip whose entries have exactly these names."""
    buffer = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "w") as archive:
        warnings.simplefilter("ignore")  # for a name that is there twice
        for name, data in entries:
            info = zipfile.ZipInfo("placeholder")
            info.filename = name
            edit(info)
            with archive.open(info, "w") as entry:  # `writestr` fails for an empty name
                entry.write(data)
    return buffer.getvalue()


def make_tar(entries: Sequence[Entry], mode: str = "w", *more: tarfile.TarInfo) -> bytes:
    """Make a tar whose entries have exactly these names, and further members without content."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode, format=tarfile.PAX_FORMAT) as archive:  # type: ignore[call-overload] # a mode of the caller
        for name, data in entries:
            info = tarfile.TarInfo(name.partition("\0")[0])
            info.size = len(data)
            if "\0" in name:  # only an extended header can say it
                info.pax_headers = {"path": name}
            archive.addfile(info, io.BytesIO(data))
        for member in more:
            archive.addfile(member)
    return buffer.getvalue()


def _member(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def _links(target: str, *more: Entry) -> list[bytes]:
    """Make archives with a symbolic link, and with files behind it."""

    def is_link(info: zipfile.ZipInfo) -> None:
        if info.filename == "skill/l":
            info.external_attr = (stat.S_IFLNK | 0o777) << 16

    entries = [SKILL, ("skill/l", target.encode()), *more]
    link = _member("skill/l", tarfile.SYMTYPE, target)
    return [make_zip(entries, is_link), make_tar([SKILL, *more], "w", link)]


def _special(kind: bytes, zip_kind: int) -> list[bytes]:
    def is_special(info: zipfile.ZipInfo) -> None:
        if info.filename != SKILL[0]:
            info.external_attr = (zip_kind | 0o644) << 16

    tar = make_tar([SKILL], "w", _member("skill/d", kind))
    return [make_zip([SKILL, ("skill/d", b"")], is_special), tar]


def _overlapping() -> list[bytes]:
    """Make a zip whose second entry is the first one again."""
    data = bytearray(make_zip([SKILL, ("skill/b.md", HEAD.encode())]))
    second = data.rfind(b"PK\x01\x02")
    struct.pack_into("<L", data, second + 42, 0)
    return [bytes(data)]


def _many_entries() -> list[bytes]:
    """Make archives of a million empty entries; a zip that says so, and one that says 5."""
    central = b"PK\x01\x02" + bytes(42) + b""
    body = central * 60_000
    ends = (1_000_001 & 0xFFFF, 5)
    zips = [
        b"PK\x03\x04"
        + body
        + struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, count, count, len(body), 4, 0)
        for count in ends
    ]
    member = tarfile.TarInfo("skill/e").tobuf()
    return [*zips, member * 20_000 + bytes(1024)]


def _other_local_name() -> list[bytes]:
    data = make_zip([SKILL, ("skill/good", b"x")])
    return [data.replace(b"skill/good", b"skill/evil", 1)]


def _encrypted() -> list[bytes]:
    data = bytearray(make_zip([SKILL]))
    data[6] |= 1
    data[data.rfind(b"PK\x01\x02") + 8] |= 1
    return [bytes(data)]


def _setuid() -> list[bytes]:
    def is_setuid(info: zipfile.ZipInfo) -> None:
        info.external_attr = (stat.S_IFREG | 0o4755) << 16

    member = tarfile.TarInfo("skill/s")
    member.mode = 0o4755
    entries = [SKILL, ("skill/s", b"x")]
    return [make_zip(entries, is_setuid), make_tar([SKILL], "w", member)]


def _swapped() -> list[bytes]:
    """Check that what was read stays the same when the file is replaced afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "a.zip")
        file.write_bytes(make_zip([SKILL]))
        before = prepare_local(file).files
        file.write_bytes(make_zip([("../evil", b"x")]))
        assert [(each.path, each.data) for each in before] == [("SKILL.md", SKILL[1])]
    return [make_zip([("../evil", b"x")])]


def _with_text(text: str, *more: Entry) -> list[bytes]:
    entries = [("skill/SKILL.md", text.encode()), *more]
    return [make_zip(entries), make_tar(entries)]


def _postinstall() -> list[bytes]:
    package = json.dumps({"name": "x", "scripts": {"postinstall": "touch ran"}})
    build = "[build-system]\nrequires = ['x']\nbuild-backend = 'x'\n"
    setup = "open('ran', 'w')\n"
    more = (("skill/package.json", package), ("skill/pyproject.toml", build))
    files = [(name, text.encode()) for name, text in (*more, ("skill/setup.py", setup))]
    return _with_text(HEAD, *files)


def _download_spec() -> list[bytes]:
    own = {"openclaw": {"install": [{"kind": "download", "url": "file:///etc/passwd"}]}}
    return _with_text(f"---\nname: notes\ndescription: d\nmetadata: {json.dumps(own)}\n---\n")


_TAG = "---\nname: notes\ndescription: !!python/object/apply:os.system ['touch ran']\n---\n"
STRUCTURES: dict[str, Callable[[], list[bytes]]] = {
    "ZS-031": lambda: _links("../../x", ("skill/l/evil", b"x")),
    "ZS-032": lambda: [make_tar([SKILL], "w", _member("skill/h", tarfile.LNKTYPE, "/etc/shadow"))],
    "ZS-033": lambda: _links("."),
    "ZS-035": lambda: _special(tarfile.CHRTYPE, stat.S_IFCHR),
    "ZS-036": lambda: _special(tarfile.FIFOTYPE, stat.S_IFIFO),
    "ZS-037": lambda: [make([SKILL, SKILL]) for make in (make_zip, make_tar)],
    "ZS-038": lambda: [make([SKILL, ("skill/skill.md", b"evil")]) for make in (make_zip, make_tar)],
    "ZS-040": _overlapping,
    "ZS-041": _many_entries,
    "ZS-042": _other_local_name,
    "ZS-043": _encrypted,
    "ZS-044": _setuid,
    "ZS-047": _swapped,
    "ZS-048": lambda: _with_text("---\nname: ../../evil\ndescription: d\n---\n"),
    "ZS-049": lambda: _with_text(_TAG),
    "ZS-052": _postinstall,
    "ZS-053": _download_spec,
}
REJECTED = frozenset(STRUCTURES) - {"ZS-044", "ZS-048", "ZS-049", "ZS-052"}


def is_rejected(data: bytes) -> bool:
    """Return whether the reader refuses an archive."""
    try:
        read_archive(data)
    except UserError:
        return True
    return False
