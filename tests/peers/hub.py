"""A registry of skills: `homarus hub serve`, with a token to publish."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.peers.install import bare_env

OURS = [sys.executable, "-m", "homarus"]


@dataclass(frozen=True, slots=True)
class Hub:
    """A running `homarus hub serve`."""

    folder: Path
    url: str
    token: str

    def stored(self, slug: str, version: str) -> Path:
        """Return the folder with the files of a published version."""
        return self.folder / "skills" / slug / version / "files"

    def publish(self, skill: Path, slug: str, home: Path) -> None:
        """Publish a folder as the owner of the token, also one that the check blocks."""
        env = {**bare_env(home), "CLAWHUB_REGISTRY": self.url, "CLAWHUB_TOKEN": self.token}
        command = [*OURS, "skills", "publish", str(skill), "--slug", slug, "--force-unsafe"]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@contextmanager
def serving(folder: Path, home: Path) -> Iterator[Hub]:
    """Serve a registry with a token for ann."""
    env = {**bare_env(home), "PYTHONUNBUFFERED": "1"}
    added = subprocess.run(
        [*OURS, "hub", "token", "add", str(folder), "ann", "--json"],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    serve = [*OURS, "hub", "serve", str(folder), "--port", "0"]
    with subprocess.Popen(serve, env=env, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"http://\S+?(?=,)", line)
            assert found, line
            yield Hub(folder, found[0], json.loads(added.stdout)["token"])
        finally:
            process.terminate()
            process.wait(30)
