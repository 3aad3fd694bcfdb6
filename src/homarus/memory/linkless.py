"""A folder in which nothing is reached through a link, wherever the link leads."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

from homarus.tools.folder import Entry, Folder, open_folder
from homarus.tools.guard import Beneath


class Linkless:
    """Another folder, whose links are refused as they are met."""

    __slots__ = ("_folder",)

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def enter(self, name: str) -> "Linkless":
        return Linkless(self._folder.enter(name))

    def link(self, name: str) -> None:
        if self._folder.link(name) is not None:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)

    def stat(self, name: str) -> os.stat_result:
        return self._folder.stat(name)

    def stat_self(self) -> os.stat_result:
        return self._folder.stat_self()

    def open_read(self, name: str) -> int:
        return self._folder.open_read(name)

    def create(self, name: str, mode: int) -> int:
        return self._folder.create(name, mode)

    def make(self, name: str) -> None:
        self._folder.make(name)

    def rename(self, old: str, new: str) -> None:
        self._folder.rename(old, new)

    def remove(self, name: str) -> None:
        self._folder.remove(name)

    def entries(self) -> Iterator[Entry]:
        return self._folder.entries()

    def sync(self) -> None:
        self._folder.sync()

    def close(self) -> None:
        self._folder.close()


def beneath(root: Path) -> Beneath:
    """The files beneath a root that stand there themselves."""
    return Beneath(root, lambda path: Linkless(open_folder(path)))
