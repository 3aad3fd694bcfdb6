"""Record how credentials perform: in memory at once, in their files soon after.

A result is pending until it is written, and the current state is the file with the pending results
applied. They are applied to the file's content at the time of writing, so that results of two
processes add up.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from homarus.core.errors import HomarusError
from homarus.core.fast_dataclass import replace
from homarus.providers.profile_file import ProfileFile
from homarus.providers.profiles import Profiles, Raw, parse, put_last_good, put_usage
from homarus.providers.rotation import (
    UNUSED,
    CooldownLimits,
    CredentialResult,
    CredentialUsage,
    Slot,
    apply_result,
)

log = logging.getLogger(__name__)

LAST_USED_STEP_MS = 60_000  # how fresh `lastUsed` in a file has to be


class CredentialUsageStore:
    """Pending results by file; those of credentials without a file stay in memory."""

    def __init__(self, limits: Callable[[str], CooldownLimits]) -> None:
        self._limits = limits
        self._fileless: dict[Slot, CredentialUsage] = {}
        self._waiting: dict[Path, list[CredentialResult]] = {}
        self._files: dict[Path, ProfileFile] = {}
        self._listing = threading.Lock()  # guards `_waiting`, held briefly
        self._writing = threading.Lock()  # guards the change of a file

    @property
    def fileless_usage(self) -> Mapping[Slot, CredentialUsage]:
        """The usage of the credentials without a file."""
        return self._fileless

    def read(self, file: ProfileFile) -> Profiles:
        """Return a file's content, with the pending results applied to its usage."""
        with self._listing:  # before the file is read: it may get them meanwhile
            marks = tuple(self._waiting.get(file.path, ()))
        content = file.read()
        if not marks:
            return content
        usage = dict(content.usage)
        for mark in marks:
            usage |= apply_result(usage, mark, self._limits(mark.provider))
        return replace(content, usage=usage)

    def record(self, file: ProfileFile | None, mark: CredentialResult) -> None:
        """Record a result; important ones are being written when this returns."""
        before = self.read(file).usage if file else self._fileless
        changed = apply_result(before, mark, self._limits(mark.provider))
        if file is None:
            self._fileless |= changed
            return
        if mark.reason is not None and not changed:
            return
        with self._listing:
            waiting = self._waiting.setdefault(file.path, [])
            if mark.reason is None:  # the newest use supersedes older ones
                waiting[:] = [each for each in waiting if not _is_same_use(each, mark)]
            waiting.append(mark)
            self._files[file.path] = file
        cleared = any(not before.get(slot, UNUSED).is_clean for slot in changed)
        if mark.reason is not None or cleared or _is_news(file, mark):
            self._write_behind(file)

    def flush(self) -> None:
        """Write all pending results. Blocks."""
        for file in tuple(self._files.values()):
            self._write(file)

    def _write_behind(self, file: ProfileFile) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._write(file)
        else:
            loop.run_in_executor(None, self._write, file)

    def _write(self, file: ProfileFile) -> None:
        with self._writing:
            with self._listing:
                marks = tuple(self._waiting.get(file.path, ()))
            if not marks:
                return
            try:
                file.update(lambda raw: self._apply(raw, marks))
            except HomarusError as exc:  # they stay pending, and apply in this process
                log.warning("how credentials fare is not saved: %s", exc)
                return
            done = {id(mark) for mark in marks}
            with self._listing:
                waiting = self._waiting[file.path]
                waiting[:] = [mark for mark in waiting if id(mark) not in done]

    def _apply(self, raw: Raw, marks: Sequence[CredentialResult]) -> None:
        usage = dict(parse(raw).usage)
        for mark in marks:
            changed = apply_result(usage, mark, self._limits(mark.provider))
            usage |= changed
            for slot, new in changed.items():
                put_usage(raw, slot, new)
            if mark.reason is None:
                put_last_good(raw, mark.provider, mark.profile_id)


def _is_news(file: ProfileFile, success: CredentialResult) -> bool:
    """Return whether a success adds more than a time that is fresh enough in the file."""
    read = file.read()
    used_ms = read.usage.get((success.profile_id, ""), UNUSED).last_used_ms
    if not 0 <= success.at_ms - used_ms < LAST_USED_STEP_MS:
        return True
    return read.last_good.get(success.provider) != success.profile_id


def _is_same_use(old: CredentialResult, new: CredentialResult) -> bool:
    return old.reason is None and (old.profile_id, old.model) == (new.profile_id, new.model)
