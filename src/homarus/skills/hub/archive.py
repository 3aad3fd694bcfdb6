"""Read archives of skills: zip, tar, tar.gz and tar.bz2, from bytes in memory.

The whole archive is checked before anything is returned, and one bad entry refuses all of it: names
that leave the folder or differ between systems, links, devices, names that collide, encryption,
overlapping or contradicting entries of a zip, too many files, too many bytes, too high a ratio.
Only names and contents are read: modes, owners and times are not. The bytes that are checked are
the bytes that are used, so that a file which is swapped in between changes nothing.
"""

import bz2
import io
import stat
import struct
import tarfile
import zipfile
import zlib
from typing import Final

from homarus.core.errors import UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.text import one_line
from homarus.skills.hub.entry_names import check_entry_path, check_no_collisions
from homarus.skills.hub.skill_files import (
    MAX_FILE_BYTES,
    MAX_FILES,
    MAX_TOTAL_BYTES,
    SKILL_FILE,
    SkillFile,
)

MAX_ARCHIVE_BYTES: Final = 50 << 20
MAX_RATIO: Final = 200  # of all files to the archive, once they have more than a megabyte
_RATIO_FROM_BYTES: Final = 1 << 20
_MAX_DIRECTORY_BYTES: Final = 1 << 20  # of a zip
_TAR_OVERHEAD_BYTES: Final = 4 << 20  # headers and padding
_END, _END_BYTES = b"PK\x05\x06", 22
_LOCAL: Final = b"PK\x03\x04"
_METHODS: Final = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
_ENCRYPTED_FLAGS: Final = 0x1 | 0x40 | 0x2000
_SIZES_FOLLOW: Final = 0x8  # the sizes are behind the data, and not in the local header
_UTF8_NAME: Final = 0x800
_ZIP64: Final = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """How large an archive and its files may be."""

    archive_bytes: int = MAX_ARCHIVE_BYTES
    files: int = MAX_FILES
    file_bytes: int = MAX_FILE_BYTES
    total_bytes: int = MAX_TOTAL_BYTES


SKILL_LIMITS: Final = ArchiveLimits()


class SkillArchiveError(UserError):
    """An archive is refused as a whole; nothing of it was written."""

    code = "archive"


def read_archive(data: bytes, limits: ArchiveLimits = SKILL_LIMITS) -> tuple[SkillFile, ...]:
    """Return the files of an archive, without a single folder around them.

    Raises SkillArchiveError.
    """
    if len(data) > limits.archive_bytes:
        raise SkillArchiveError(f"the archive has more than {limits.archive_bytes} bytes")
    try:
        files = _read_zip(data, limits) if data[:2] == b"PK" else _read_tar(data, limits)
        check_no_collisions(file.path for file in files)
    except SkillArchiveError:
        raise
    except UserError as exc:
        raise SkillArchiveError(f"the archive is refused: {exc.message}") from exc
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, OSError) as exc:
        raise SkillArchiveError(f"the archive cannot be read: {one_line(str(exc), 120)}") from exc
    except (struct.error, ValueError, NotImplementedError, OverflowError, IndexError) as exc:
        raise SkillArchiveError(f"the archive is damaged: {one_line(str(exc), 120)}") from exc
    if not files:
        raise SkillArchiveError("the archive has no files")
    return _without_top_folder(files)


def _without_top_folder(files: tuple[SkillFile, ...]) -> tuple[SkillFile, ...]:
    """Return the files below the one folder that has them all; SKILL.md is then at the top."""
    top = files[0].path.partition("/")[0] + "/"
    is_wrapped = all(file.path.startswith(top) for file in files)
    if not is_wrapped or not any(file.path == f"{top}{SKILL_FILE}" for file in files):
        return files
    return tuple(SkillFile(file.path.removeprefix(top), file.data) for file in files)


def check_size(
    total: int, count: int, archive_bytes: int, limits: ArchiveLimits = SKILL_LIMITS
) -> None:
    """Raise SkillArchiveError when an archive has too many files or bytes."""
    if count > limits.files:
        raise SkillArchiveError(f"the archive has more than {limits.files} files")
    if total > limits.total_bytes:
        raise SkillArchiveError(f"the files have more than {limits.total_bytes} bytes")
    if total > _RATIO_FROM_BYTES and total > MAX_RATIO * archive_bytes:
        raise SkillArchiveError("the files are too large for their archive: a decompression bomb")


def _read_zip(data: bytes, limits: ArchiveLimits) -> tuple[SkillFile, ...]:
    _check_zip_end(data, limits)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        infos = archive.infolist()
        check_size(sum(info.file_size for info in infos), len(infos), len(data), limits)
        _check_zip_layout(data, infos)
        files = list[SkillFile]()
        for info in infos:
            is_folder = _check_zip_entry(info, limits)
            check_entry_path(info.filename.removesuffix("/") if is_folder else info.filename)
            if is_folder:
                continue
            with archive.open(info) as entry:
                content = entry.read(info.file_size + 1)
            if len(content) != info.file_size:
                raise SkillArchiveError("an entry of the archive is not as long as it says")
            files.append(SkillFile(info.filename, content))
    return tuple(files)


def _check_zip_end(data: bytes, limits: ArchiveLimits) -> None:
    """Check the end record, before its directory is read: it has the number of entries."""
    at = data.rfind(_END)
    if at < 0 or at + _END_BYTES > len(data) or not data.startswith((_LOCAL, _END)):
        raise SkillArchiveError("the archive is damaged, or not only an archive")
    _, disk, start, here, total, size, offset, comment = struct.unpack_from("<4s4H2LH", data, at)
    if disk or start or here != total or comment or at + _END_BYTES != len(data):
        raise SkillArchiveError("the archive has parts, a comment, or bytes behind its end")
    if total > limits.files or size > _MAX_DIRECTORY_BYTES:
        raise SkillArchiveError(f"the archive has more than {limits.files} files")
    if offset + size != at:
        raise SkillArchiveError("the directory of the archive is not where it says")


def _check_zip_layout(data: bytes, infos: list[zipfile.ZipInfo]) -> None:
    """Check that local headers say what the directory says, and that no two entries overlap."""
    end = 0
    for info in sorted(infos, key=lambda each: each.header_offset):
        if info.header_offset != end:
            raise SkillArchiveError("entries of the archive overlap, or have bytes between them")
        fields = struct.unpack_from("<4s5H3L2H", data, info.header_offset)
        magic, _, flags, method, _, _, _, packed, size, name_bytes, extra_bytes = fields
        name_at = info.header_offset + 30
        name = data[name_at : name_at + name_bytes]
        encoding = "utf-8" if flags & _UTF8_NAME else "cp437"
        has_sizes = not flags & _SIZES_FOLLOW
        if (
            magic != _LOCAL
            or flags != info.flag_bits
            or method != info.compress_type
            or name.decode(encoding) != info.orig_filename
            or (has_sizes and (packed, size) != (info.compress_size, info.file_size))
        ):
            raise SkillArchiveError("the archive contradicts itself about an entry")
        end = name_at + name_bytes + extra_bytes + info.compress_size
        if not has_sizes:
            end += 16 if data[end : end + 4] == b"PK\x07\x08" else 12
    if infos and data[end : end + 4] != b"PK\x01\x02":
        raise SkillArchiveError("the archive has bytes that belong to no entry")


def _check_zip_entry(info: zipfile.ZipInfo, limits: ArchiveLimits) -> bool:
    """Check one entry, and return whether it is a folder."""
    if info.flag_bits & _ENCRYPTED_FLAGS:
        raise SkillArchiveError("the archive is encrypted: what is in it cannot be checked")
    if info.compress_type not in _METHODS:
        raise SkillArchiveError("the archive is packed by a method that is not used for skills")
    if info.filename != info.orig_filename:
        raise SkillArchiveError("a name in the archive can be read in two ways")
    if info.file_size > limits.file_bytes:
        raise SkillArchiveError(f"a file has more than {limits.file_bytes} bytes")
    kind = stat.S_IFMT(info.external_attr >> 16)
    is_folder = info.filename.endswith("/")
    if kind not in ((0, stat.S_IFDIR) if is_folder else (0, stat.S_IFREG)):
        raise SkillArchiveError("the archive has a link or a device")
    if is_folder and info.file_size:
        raise SkillArchiveError("a folder of the archive has content")
    return is_folder


def _read_tar(data: bytes, limits: ArchiveLimits) -> tuple[SkillFile, ...]:
    plain = _unpack(data, limits)
    files, total = list[SkillFile](), 0
    with tarfile.open(fileobj=io.BytesIO(plain), mode="r:", errorlevel=2) as archive:
        count = 0
        for member in archive:
            count += 1
            total += member.size
            check_size(total, count, len(data), limits)
            name = member.name.removeprefix("./") if member.name != "./" else "."
            if member.isdir():
                if name != ".":  # `tar c .` begins with it
                    check_entry_path(name)
                continue
            check_entry_path(name)
            if not member.isreg() or member.issparse():
                raise SkillArchiveError("the archive has a link, a device or a sparse file")
            if member.size > limits.file_bytes:
                raise SkillArchiveError(f"a file has more than {limits.file_bytes} bytes")
            entry = archive.extractfile(member)
            content = entry.read() if entry else b""
            if len(content) != member.size:
                raise SkillArchiveError("an entry of the archive is not as long as it says")
            files.append(SkillFile(name, content))
    return tuple(files)


def _unpack(data: bytes, limits: ArchiveLimits) -> bytes:
    """Return a tar archive, unpacked with a limit."""
    limit = limits.total_bytes + _TAR_OVERHEAD_BYTES
    if data[:2] == b"\x1f\x8b":
        unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
        plain, is_whole = unpacker.decompress(data, limit), unpacker.eof
    elif data[:3] == b"BZh":
        packed = bz2.BZ2Decompressor()
        plain, is_whole = packed.decompress(data, limit), packed.eof
    else:
        return data
    if len(plain) >= limit:
        raise SkillArchiveError("the files are too large for their archive: a decompression bomb")
    if not is_whole:
        raise SkillArchiveError("the archive is cut off")
    check_size(max(0, len(plain) - _TAR_OVERHEAD_BYTES), 0, len(data), limits)
    return plain


def make_zip(files: tuple[SkillFile, ...]) -> bytes:
    """Return a zip of files; the same files make the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(files, key=lambda each: each.path):
            info = zipfile.ZipInfo(file.path)  # of 1980, for its owner alone
            info.external_attr = (stat.S_IFREG | 0o644) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, file.data)
    return buffer.getvalue()
