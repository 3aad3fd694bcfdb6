"""Which actions a person has approved: `skill-actions.json` in the state directory.

An action is what its definition says, written by the skill's author; and a skill in a workspace may
have been written by the agent itself. So the first call of an action asks a person, who is shown
the request or the command, and the definition is then pinned by its digest. A changed one asks
again. The actions of bundled skills are a part of this program and need no pin.
"""

import hashlib
import json
import logging
import threading
import time
from pathlib import Path
from typing import Any, Final

from homarus.core.atomic_file import write_atomic
from homarus.core.private_files import make_private_dir
from homarus.skills.actions.definition import CommandAction, SkillAction
from homarus.skills.skill import Skill, SkillTier

log = logging.getLogger(__name__)

FILE: Final = "skill-actions.json"
MAX_PINS: Final = 2_000
_VERSION: Final = 1


def action_digest(skill: Skill, action: SkillAction) -> str:
    """Return the digest of what a person approves: the definition, for this skill and its keys.

    A command may run files of the skill's folder, so the folder is a part of it.
    """
    folder = str(skill.folder) if isinstance(action.does, CommandAction) else ""
    values = [skill.name, skill.key, skill.metadata.primary_env, folder, action.digest]
    return hashlib.sha256(json.dumps(values).encode("utf-8", "surrogatepass")).hexdigest()


class ActionPins:
    """The approved digests, by skill and action; the file is read again after it has changed."""

    def __init__(self, state: Path) -> None:
        self._path = state / FILE
        self._lock = threading.Lock()

    def is_approved(self, skill: Skill, action: SkillAction) -> bool:
        """Return whether a person has approved exactly this definition."""
        if skill.tier is SkillTier.BUNDLED:
            return True
        return self._read().get(_key(skill, action), {}).get("digest") == action_digest(
            skill, action
        )

    def is_known(self, skill: Skill, action: SkillAction) -> bool:
        """Return whether a person has approved the action, as it is now or as it was."""
        return _key(skill, action) in self._read()

    def approve(self, skill: Skill, action: SkillAction) -> None:
        """Save that a person has approved the definition."""
        with self._lock:
            pins = self._read()
            pins.pop(_key(skill, action), None)
            pins[_key(skill, action)] = {
                "digest": action_digest(skill, action),
                "approvedAtMs": time.time_ns() // 1_000_000,
            }
            newest = dict(list(pins.items())[-MAX_PINS:])
            make_private_dir(self._path.parent)
            data = json.dumps({"version": _VERSION, "actions": newest}, indent=2)
            write_atomic(self._path, data.encode())

    def _read(self) -> dict[str, dict[str, Any]]:
        try:
            tree = json.loads(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as exc:
            log.warning("%s cannot be read, so every action is asked about: %s", self._path, exc)
            return {}
        pins = tree.get("actions") if isinstance(tree, dict) else None
        found = pins.items() if isinstance(pins, dict) else ()
        return {name: pin for name, pin in found if isinstance(pin, dict)}


def _key(skill: Skill, action: SkillAction) -> str:
    return f"{skill.name}/{action.name}"
