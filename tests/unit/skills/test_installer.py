"""Installing skill folders: replacing, removing, the files of `clawhub`, and crashes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from homarus.core.errors import UserError
from homarus.skills.hub.installer import SkillInstaller
from homarus.skills.hub.lock_file import SkillLock, SkillOrigin, read_origin
from homarus.skills.hub.skill_files import SkillFile

HEAD = b"---\nname: notes\ndescription: Keeps notes.\n---\n"
REGISTRY = "https://skills.example"


def files(version: str) -> tuple[SkillFile, ...]:
    """Make the files of a version; each has files that the other lacks."""
    text = version.encode()
    more = (SkillFile(f"docs/{version}-{number}.md", text) for number in range(5))
    return (SkillFile("SKILL.md", HEAD + text), *more)


def origin(version: str) -> SkillOrigin:
    return SkillOrigin(REGISTRY, "notes", version, 1_700_000_000_000, "ann")


def put(root: Path, version: str) -> SkillInstaller:
    installer = SkillInstaller(root)
    with installer.changing():
        installer.install("notes", files(version), origin(version))
    return installer


def state(root: Path) -> tuple[str, str]:
    """Return the version on disk, checked to be whole, and that of the lock."""
    folder = root / "skills" / "notes"
    entries = SkillLock(root).entries()
    locked = entries["notes"].version if "notes" in entries else ""
    if not folder.exists():
        return "", locked
    found = read_origin(folder)
    assert found is not None
    expected = {file.path: file.data for file in files(found.version)}
    real = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and ".clawhub" not in path.parts
    }
    assert real == expected
    return found.version, locked


def test_install_writes_the_files_of_clawhub(tmp_path: Path) -> None:
    installer = put(tmp_path, "1.0.0")
    found = installer.find("notes")
    assert found is not None
    assert (found.version, found.is_edited, found.is_pinned) == ("1.0.0", False, False)
    lock = json.loads((tmp_path / ".clawhub" / "lock.json").read_text())
    fingerprint = found.origin.fingerprint if found.origin else ""
    assert lock == {
        "version": 1,
        "skills": {
            "notes": {
                "version": "1.0.0",
                "installedAt": 1_700_000_000_000,
                "ownerHandle": "ann",
                "fingerprint": fingerprint,
            }
        },
    }
    text = (tmp_path / "skills" / "notes" / ".clawhub" / "origin.json").read_text()
    assert json.loads(text) == {
        "version": 1,
        "registry": REGISTRY,
        "slug": "notes",
        "ownerHandle": "ann",
        "installedVersion": "1.0.0",
        "installedAt": 1_700_000_000_000,
        "fingerprint": fingerprint,
    }


def test_install_replaces_the_whole_folder_and_keeps_the_pin(tmp_path: Path) -> None:
    installer = put(tmp_path, "1.0.0")
    entry = dict(installer.lock.entries()["notes"].values) | {"pinned": True, "pinReason": "why"}
    installer.lock.put("notes", entry)
    put(tmp_path, "2.0.0")
    assert state(tmp_path) == ("2.0.0", "2.0.0")
    after = installer.lock.entries()["notes"]
    assert (after.is_pinned, after.pin_reason) == (True, "why")
    assert list((tmp_path / ".clawhub" / "staging").iterdir()) == []


def test_install_without_exchange_replaces_the_folder(tmp_path: Path) -> None:
    put(tmp_path, "1.0.0")
    installer = SkillInstaller(tmp_path, exchange=lambda _one, _other: False)
    with installer.changing():
        installer.install("notes", files("2.0.0"), origin("2.0.0"))
    assert state(tmp_path) == ("2.0.0", "2.0.0")


def test_installed_files_are_private_and_not_executable(tmp_path: Path) -> None:
    put(tmp_path, "1.0.0")
    for path in (tmp_path / "skills" / "notes").rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600)


def test_edited_skill_is_noticed(tmp_path: Path) -> None:
    installer = put(tmp_path, "1.0.0")
    (tmp_path / "skills" / "notes" / "SKILL.md").write_bytes(HEAD)
    found = installer.find("notes")
    assert found is not None
    assert found.is_edited


def test_origin_file_of_an_archive_is_not_used(tmp_path: Path) -> None:
    forged = SkillFile(".clawhub/origin.json", b'{"version": 1}')
    installer = SkillInstaller(tmp_path)
    with installer.changing():
        installer.install("notes", (*files("1.0.0"), forged), origin("1.0.0"))
    assert state(tmp_path)[0] == "1.0.0"


def test_local_skill_has_no_entry_in_the_lock(tmp_path: Path) -> None:
    installer = SkillInstaller(tmp_path)
    with installer.changing():
        installer.install("notes", files("1.0.0"))
    found = installer.find("notes")
    assert found is not None
    assert (found.origin, found.version, installer.lock.entries()) == (None, "", {})


def test_remove_deletes_folder_and_entry(tmp_path: Path) -> None:
    installer = put(tmp_path, "1.0.0")
    with installer.changing():
        installer.remove("notes")
    assert installer.find("notes") is None
    assert installer.lock.entries() == {}


def test_links_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "keep").write_text("x")
    root = tmp_path / "root"
    (root / "skills").mkdir(parents=True)
    (root / "skills" / "notes").symlink_to(outside)
    with pytest.raises(UserError, match="is a link"):
        put(root, "1.0.0")
    installer = SkillInstaller(root)
    with installer.changing():
        installer.remove("notes")
    assert (outside / "keep").exists()
    assert not os.path.lexists(root / "skills" / "notes")


def test_skills_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "skills").symlink_to(tmp_path / "outside")
    with pytest.raises(UserError, match="is a link"):
        put(tmp_path / "root", "1.0.0")


def test_files_without_a_skill_are_refused(tmp_path: Path) -> None:
    installer = SkillInstaller(tmp_path)
    with installer.changing(), pytest.raises(UserError, match=r"SKILL\.md"):
        installer.install("notes", (SkillFile("README.md", b""),))
    assert list((tmp_path / "skills").iterdir()) == []


def test_damaged_lock_file_is_named(tmp_path: Path) -> None:
    (tmp_path / ".clawhub").mkdir()
    (tmp_path / ".clawhub" / "lock.json").write_text("{")
    with pytest.raises(UserError, match=r"lock\.json"):
        put(tmp_path, "1.0.0")


def test_entry_of_an_owner_is_found_by_its_slug(tmp_path: Path) -> None:
    lock = SkillLock(tmp_path)
    lock.put("@ann/notes", {"version": "1.0.0", "installedAt": 1, "other": [1]})
    found = lock.find("notes")
    assert found is not None
    assert (found[0], found[1].version, found[1].values["other"]) == ("@ann/notes", "1.0.0", [1])


_CHILD = """
import sys
from pathlib import Path
from tests.unit.skills.test_installer import files, origin
from homarus.skills.hub.installer import SkillInstaller
root, action, swap = Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "swap"
named = {} if swap else {"exchange": lambda one, other: False}
installer = SkillInstaller(root, **named)
with installer.changing():
    if action == "remove":
        installer.remove("notes")
    else:
        installer.install("notes", files(action), origin(action))
"""


def kill_at(point: str, root: Path, action: str, way: str) -> None:
    """Run a change in another process that is killed at a fault point."""
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, str(root), action, way],
        env={**os.environ, "HOMARUS_FAULT": f"{point}:kill9"},
        cwd=Path(__file__).parents[3],
        check=False,
    )
    assert done.returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    ("way", "point"),
    [
        *(("swap", point) for point in ("skill.staged", "skill.replaced", "skill.locked")),
        # Where folders cannot be exchanged in one step, there is one more moment.
        *(
            ("move", point)
            for point in ("skill.staged", "skill.moved", "skill.replaced", "skill.locked")
        ),
    ],
)
def test_update_killed_at_any_point_is_old_or_new(tmp_path: Path, point: str, way: str) -> None:
    put(tmp_path, "1.0.0")
    kill_at(point, tmp_path, "2.0.0", way)
    if point != "skill.moved":
        assert state(tmp_path)[0] == ("1.0.0" if point == "skill.staged" else "2.0.0")
    installer = SkillInstaller(tmp_path)
    with installer.changing():
        pass
    is_new = point in ("skill.replaced", "skill.locked")
    assert state(tmp_path) == (("2.0.0", "2.0.0") if is_new else ("1.0.0", "1.0.0"))
    assert list((tmp_path / ".clawhub" / "staging").iterdir()) == []
    put(tmp_path, "3.0.0")
    assert state(tmp_path) == ("3.0.0", "3.0.0")


@pytest.mark.parametrize("point", ["skill.staged", "skill.replaced", "skill.locked"])
def test_first_install_killed_is_nothing_or_new(tmp_path: Path, point: str) -> None:
    kill_at(point, tmp_path, "1.0.0", "swap")
    with SkillInstaller(tmp_path).changing():
        pass
    assert state(tmp_path) == (("", "") if point == "skill.staged" else ("1.0.0", "1.0.0"))


@pytest.mark.parametrize("point", ["skill.staged", "skill.replaced", "skill.locked"])
def test_removal_killed_is_there_or_gone(tmp_path: Path, point: str) -> None:
    put(tmp_path, "1.0.0")
    kill_at(point, tmp_path, "remove", "swap")
    with SkillInstaller(tmp_path).changing():
        pass
    assert state(tmp_path) == (("1.0.0", "1.0.0") if point == "skill.staged" else ("", ""))
