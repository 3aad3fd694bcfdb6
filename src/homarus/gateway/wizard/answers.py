"""The answers of a wizard that was interrupted, in a private file of the state directory.

Secrets are never among them. The file is removed when the wizard ends.
"""

import json
from contextlib import suppress
from pathlib import Path
from typing import Final

from homarus.core.atomic_file import write_atomic
from homarus.core.message import Json
from homarus.core.private_files import make_private_dir

FILE: Final = "wizard.json"  # in the state directory
_VERSION: Final = 1
_MAX_BYTES: Final = 200_000


class WizardAnswers:
    """The answers of the section under way and the finished sections; without a path, in memory.

    Every answer is written at once, so that it survives a closed terminal.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self.done: list[str] = []
        self._answers: dict[str, Json] = {}
        self._presets: dict[str, Json] = {}

    @classmethod
    def load(cls, path: Path) -> "WizardAnswers":
        """Return what an interrupted wizard left; a file that cannot be read is ignored."""
        answers = cls(path)
        with suppress(OSError, ValueError, RecursionError):
            with path.open("rb") as file:
                stored = json.loads(file.read(_MAX_BYTES))
            if isinstance(stored, dict) and stored.get("version") == _VERSION:
                done, given = stored.get("done"), stored.get("answers")
                answers.done = [str(name) for name in done] if isinstance(done, list) else []
                answers._answers = dict(given) if isinstance(given, dict) else {}
        return answers

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to resume."""
        return not (self.done or self._answers)

    def find(self, step: str) -> Json:
        """Return the answer to a step, None when it was not answered yet."""
        return self._answers.get(step)

    def preset(self, step: str, answer: Json) -> None:
        """Answer a step in advance; the answer may be a secret, and is used once."""
        self._presets[step] = answer

    def pop_preset(self, step: str) -> Json:
        """Return and remove the answer that a step was given in advance, None without one."""
        return self._presets.pop(step, None)

    def save(self, step: str, answer: Json) -> None:
        """Save the answer to a step."""
        self._answers[step] = answer
        self._write()

    def forget(self, *prefixes: str) -> None:
        """Forget the answers whose step starts with one of these."""
        self._answers = {
            step: answer for step, answer in self._answers.items() if not step.startswith(prefixes)
        }
        self._write()

    def finish(self, section: str) -> None:
        """Record that a section took effect: its answers are no longer needed."""
        self.done.append(section)
        self._answers.clear()
        self._write()

    def remove(self) -> None:
        """Forget everything."""
        self.done.clear()
        self._answers.clear()
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _write(self) -> None:
        if self._path is None:
            return
        content = {"version": _VERSION, "done": self.done, "answers": self._answers}
        make_private_dir(self._path.parent)
        write_atomic(self._path, json.dumps(content, indent=2).encode())
