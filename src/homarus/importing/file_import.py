"""Copy an agent's notes and old transcripts, without replacing a file of the target.

A file with the same content is left as it is. One with another content stays, and the source's is
stored next to it as `<name>.imported-<hash>.md`. The store records what was imported: a note that
was changed here after its import is not imported again.
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

from homarus.core.fast_dataclass import dataclass
from homarus.core.faults import fault_point
from homarus.importing.file_copy import CheckTarget, beside, copy_new, digest, has_content
from homarus.importing.report import ImportReport, Kind, Outcome
from homarus.importing.source_home import SourceWorkspace
from homarus.importing.source_tree import RefusedSourceError, SourceTree
from homarus.memory.note_files import FOLDERS, MAX_FILE_BYTES, ROOTS
from homarus.store.base import Store

OpenFile: TypeAlias = Callable[[str], BinaryIO]
RECORD: Final = "import"  # the kind of the store's records of imported files
_ROOT_NOTES: Final = (*ROOTS, "DREAMS.md")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of the source, and where it goes."""

    path: str  # what opens it, and names it in the report
    target: Path
    copy: Path  # where it goes if there is another file at `target`, apart from the hash


def find_source_notes(workspace: SourceWorkspace, target: Path) -> Iterator[SourceFile]:
    """Yield the notes of a workspace: its memory files, and those of its memory folders."""
    tree, top = workspace.tree, workspace.path
    seen: set[tuple[int, int]] = set()
    for name in _ROOT_NOTES:
        path = f"{top}/{name}"
        if not tree.exists(path):
            continue
        status = (tree.root / path).lstat()
        if (status.st_dev, status.st_ino) not in seen:  # a disk may ignore case
            seen.add((status.st_dev, status.st_ino))
            # Only the memory folder is searched for notes of other names.
            yield SourceFile(path, target / name, target / "memory" / name)
    for folder in FOLDERS:
        if (tree.root / top / folder).is_symlink() and not tree.is_folder(f"{top}/{folder}"):
            yield SourceFile(f"{top}/{folder}", target / folder, target / folder)
        for path in tree.walk(f"{top}/{folder}"):
            if path.endswith(".md"):
                place = target / path.removeprefix(f"{top}/")
                yield SourceFile(path, place, place)


def open_note(tree: SourceTree) -> OpenFile:
    """Return the function that opens a note of a workspace."""
    return lambda path: tree.open(path, MAX_FILE_BYTES)


def count_notes(workspaces: Iterable[Path]) -> int:
    """Return how many notes the target's workspaces have."""
    found = 0
    for workspace in set(workspaces):
        tree = SourceTree(workspace)
        notes = find_source_notes(SourceWorkspace("", tree, "."), workspace)
        found += sum(not (tree.root / note.path).is_symlink() for note in notes)
    return found


@dataclass(slots=True)
class FileImporter:
    """Copies files; with `is_dry_run` it only counts them."""

    store: Store
    report: ImportReport
    is_dry_run: bool
    check_target: CheckTarget

    async def add(
        self, kind: Kind, agent: str, open_file: OpenFile, files: Iterable[SourceFile]
    ) -> None:
        """Copy the files of one agent, then record them. Raises OSError if the target fails."""
        done: list[str] = []
        known = (await self.store.records(RECORD)).keys()
        for file in files:
            try:
                outcome, text, record = self._copy(kind, agent, open_file, file, known)
            except (RefusedSourceError, FileNotFoundError) as exc:
                reason = str(exc) if isinstance(exc, RefusedSourceError) else "is gone"
                self.report.add(kind, "skipped", file.path, f"skipped: it {reason}")
                continue
            self.report.add(kind, outcome, file.path, text)
            done += [record] if record else []
        if done and not self.is_dry_run:
            async with self.store.transaction() as transaction:
                for record in done:
                    transaction.put_record(RECORD, record, {})

    def _copy(
        self, kind: Kind, agent: str, open_file: OpenFile, file: SourceFile, known: Collection[str]
    ) -> tuple[Outcome, str, str]:
        """Copy one file; return the outcome, a note, and a record that is missing."""
        with open_file(file.path) as opened:
            found = digest(opened)
            record = f"{kind}:{agent}:{file.path}:{found.sha256}"
            missing = "" if record in known else record
            target, text = file.target, ""
            if os.path.lexists(target):
                if not missing or has_content(target, found.sha256):
                    return "present", "", missing
                target = beside(file.copy, found.sha256)
                if os.path.lexists(target):  # its name has the hash of the content
                    return "present", "", missing
                text = f"imported as {target}: {file.target.name} is different here"
            if not self.is_dry_run:
                copy_new(opened, found, self.check_target(target))
                fault_point("import.item")
        return ("keptBeside" if text else "imported"), text, missing
