"""Reading archives of skills; the recorded attacks are in tests/attacks/archives.py."""

import io
import random
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from homarus.core.errors import UserError
from homarus.skills.hub.archive import (
    MAX_ARCHIVE_BYTES,
    SkillArchiveError,
    make_zip,
    read_archive,
)
from homarus.skills.hub.entry_names import check_no_collisions, check_owner, check_slug
from homarus.skills.hub.skill_files import (
    MAX_FILES,
    SkillFile,
    fingerprint_files,
    read_skill_folder,
)

SKILL = SkillFile("SKILL.md", b"---\nname: a\ndescription: b\n---\n")


def test_archive_of_files_is_read_as_it_was_made() -> None:
    files = (SKILL, SkillFile("scripts/run.py", b"print(1)\n"), SkillFile("ü/näme.md", b""))
    assert sorted(read_archive(make_zip(files)), key=lambda each: each.path) == sorted(
        files, key=lambda each: each.path
    )
    assert make_zip(files) == make_zip(files[::-1])


@pytest.mark.parametrize("command", [["zip", "-qr", "-"], ["tar", "cf", "-"], ["tar", "czf", "-"]])
def test_archive_of_usual_programs_is_read(command: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    (folder / "docs").mkdir(parents=True)
    (folder / "SKILL.md").write_bytes(SKILL.data)
    (folder / "docs" / "a.md").write_bytes(b"a" * 5000)
    for cwd, name in ((folder, "."), (tmp_path, "notes")):
        try:
            made = subprocess.run([*command, name], cwd=cwd, capture_output=True, check=True)
        except FileNotFoundError:
            pytest.skip(f"there is no {command[0]}")
        assert {file.path for file in read_archive(made.stdout)} == {"SKILL.md", "docs/a.md"}


def test_archive_bomb_is_refused_before_it_is_unpacked() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("SKILL.md", SKILL.data)
        archive.writestr("zeros", bytes(9 << 20))
    with pytest.raises(SkillArchiveError, match="bomb"):
        read_archive(buffer.getvalue())


def test_archive_tar_bomb_is_refused_by_its_size() -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for number in range(8):
            info = tarfile.TarInfo(f"zeros{number}")
            info.size = 9 << 20
            archive.addfile(info, io.BytesIO(bytes(info.size)))
    with pytest.raises(SkillArchiveError, match="bomb"):
        read_archive(buffer.getvalue())


def test_archive_with_too_many_files_or_bytes_is_refused() -> None:
    files = tuple(SkillFile(f"f{number}", b"") for number in range(MAX_FILES + 1))
    with pytest.raises(SkillArchiveError, match="more than 1000 files"):
        read_archive(make_zip(files))
    with pytest.raises(SkillArchiveError, match="bytes"):
        read_archive(bytes(MAX_ARCHIVE_BYTES + 1))


@pytest.mark.parametrize("data", [b"", b"PK", b"PK\x05\x06" + bytes(18), b"hello", b"\x1f\x8b\x08"])
def test_archive_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(SkillArchiveError):
        read_archive(data)


def test_archive_with_bytes_around_it_is_refused() -> None:
    data = make_zip((SKILL,))
    for changed in (b"#!/bin/sh\n" + data, data + b"more", data[:-2] + b"\x04\x00note"):
        with pytest.raises(SkillArchiveError):
            read_archive(changed)


def test_archive_with_changed_bytes_never_crashes() -> None:
    chosen = random.Random(7)
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        info = tarfile.TarInfo("SKILL.md")
        info.size = len(SKILL.data)
        archive.addfile(info, io.BytesIO(SKILL.data))
    for data in (make_zip((SKILL, SkillFile("a/b", b"x" * 99))), plain.getvalue()[:1536]):
        for _ in range(1500):
            changed = bytearray(data)
            for _ in range(chosen.randint(1, 4)):
                changed[chosen.randrange(len(changed))] = chosen.randrange(256)
            try:
                files = read_archive(bytes(changed))
            except SkillArchiveError:
                continue
            assert all(not file.path.startswith("/") for file in files)


@pytest.mark.parametrize(
    "paths", [("a", "A"), ("a/b", "a"), ("a", "a/b"), ("A/x", "a/y"), ("ﬁ", "fi"), ("a", "a")]
)
def test_paths_that_are_one_on_some_system_collide(paths: tuple[str, ...]) -> None:
    with pytest.raises(UserError, match="collide"):
        check_no_collisions(paths)


@pytest.mark.parametrize("slug", ["", "A", "a/b", "..", "-a", "con", "a" * 65, "a b", "a\n"])
def test_slug_that_is_no_folder_name_is_refused(slug: str) -> None:
    with pytest.raises(UserError):
        check_slug(slug)


def test_owner_is_folded_and_checked() -> None:
    assert check_owner("@Ann") == "ann"
    with pytest.raises(UserError):
        check_owner("@../x")


def test_fingerprint_is_the_one_of_clawhub() -> None:
    """The value was observed: `clawhub install` writes it for these files."""
    texts = {
        "SKILL.md": "---\nname: demo\ndescription: d\n---\nhello\n",
        "_a.md": "x",
        "B.md": "b",
        "a/z.md": "z",
        "Äb.md": "u",
        "a-b.txt": "q",
    }
    files = [SkillFile(path, text.encode()) for path, text in texts.items()]
    expected = "29e1cc26a901ece21c269ea362d5acba2e38c06cab382d5a0ef0ec59f1c982ba"
    assert fingerprint_files(files) == expected
    assert fingerprint_files([*files, SkillFile(".clawhub/origin.json", b"{}")]) == expected


def test_folder_leaves_out_what_is_not_published(tmp_path: Path) -> None:
    for name in ("SKILL.md", "a.log", "keep.log", "out/x", "docs/out/y", "node_modules/m", ".env"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / ".clawhubignore").write_text("# mine\n*.log\n!keep.log\n/out/\n")
    found = [file.path for file in read_skill_folder(tmp_path)]
    assert found == ["SKILL.md", "docs/out/y", "keep.log"]
