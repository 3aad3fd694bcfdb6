"""The plan of a command that runs in a sandbox: its text, and how its launcher is started."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from homarus.tools.exec.executable import real_path
from homarus.tools.exec.plan import ExecPlan, PlanFolder
from homarus.tools.sandbox.base import SandboxLaunch

REASON: Final = "it runs in a sandbox, by a shell"


def make_sandboxed_plan(
    command: str,
    launch: SandboxLaunch,
    *,
    folder: str,
    folder_fd: int,
    workspace: Path,
    env: Mapping[str, str],
    requested_env: Mapping[str, str],
    timeout_s: float,
    stdin: str = "",
    pty: bool = False,
    background: bool = False,
) -> ExecPlan:
    """Return the plan of a command that `launch` starts.

    `folder` is the folder inside that the command runs in, `folder_fd` the workspace on this
    machine, in which the launcher is started, `env` the environment inside. The descriptor is
    duplicated; the launch belongs to the plan, whose `close` closes it.
    """
    own_fd = os.dup(folder_fd)
    try:
        place = PlanFolder(folder, own_fd, os.fstat(own_fd).st_ino)
        given = (dict(env), dict(requested_env), stdin, timeout_s, pty, background)
        root = real_path(str(workspace))
        digest = _digest(launch, place, command, *given)
    except BaseException:
        os.close(own_fd)
        raise
    return ExecPlan(command, None, REASON, place, root, *given, digest, launch)


def _digest(launch: SandboxLaunch, folder: PlanFolder, *given: object) -> str:
    """Return the digest over what decides what runs; descriptors have no meaning beyond this run.

    Numbers of descriptors are part of the arguments of a launcher, and names of cgroups and
    containers are new for every command: `launch.identity` is what stays equal.
    """
    rules = [
        launch.identity or [list(launch.argv), [each.path for each in launch.cgroups]],
        sorted(launch.env.items()),
        [list(each) for each in launch.rlimits],
        [[list(pair) for pair in each.settings] for each in launch.cgroups],
        launch.uses_landlock,
        list(launch.disk_folders),
        launch.disk_bytes,
        launch.proxy >= 0,
        sorted(launch.allowed_hosts),
    ]
    values = ["sandbox", rules, folder.path, folder.inode, *given]
    data = json.dumps(values, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(data.encode()).hexdigest()
