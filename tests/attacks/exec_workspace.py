"""The workspace of the exec cases: files whose use would show, and repositories with settings.

Harm shows as a file `pwned` in the workspace, the text of `secret.txt`, or the token of the
environment in the output.
"""

import subprocess
from pathlib import Path
from typing import Final

SECRET: Final = "TOPSECRET-9f3"
TOKEN: Final = "TOKENVAL-77a"

_TEXTS: Final = {
    "secret.txt": f"{SECRET}\n",
    "notes.md": "hello\n",
    "a.txt": "hello\n",
    "x.md": "x\n",
    "name.txt": "pwned\n",
    "scratch": "1",
    "safe.py": "print(1)\n",
    "safe.js": "1\n",
    "sub/k": "",
    "package.json": '{"name": "x", "version": "1.0.0", "scripts": {"test": "true"}}',
    "evil.awk": 'BEGIN{system("touch pwned")}\n',
    "evil.sed": "1e touch pwned\n",
    "evil.mk": "all:\n\ttouch pwned\n",
}
_EVIL_PROGRAMS: Final = (
    "evil.sh evilbin/git evilbin/git-foo evilbin/git-status evilbin/head head git evild/x"
    " evil/sub/tool"
)
_LINES: Final = 40_000


def build_workspace(root: Path) -> None:
    """Write the files and repositories into an existing, empty folder."""
    canary = root / "pwned"
    texts = {
        **_TEXTS,
        "evil.py": f"open({str(canary)!r}, 'w')\n",
        "evil.js": f"require('fs').writeFileSync({str(canary)!r}, '')\n",
        "evilhome/.gitconfig": f"[core]\n\tfsmonitor = {root}/evil.sh\n",
        "big.txt": "".join(f"{number * 7919 % 100003}\n" for number in range(_LINES)),
    }
    for name, text in texts.items():
        _write(root / name, text)
    for name in _EVIL_PROGRAMS.split():
        _write(root / name, f"#!/bin/sh\ntouch {canary}\n", mode=0o755)
    _write(root / "bin/tool", "#!/bin/sh\n:\n", mode=0o755)
    (root / "bin/link").symlink_to("/usr/bin/touch")
    (root / "leak.md").symlink_to("secret.txt")
    _run(root, "git", "init", "-q", ".")
    _run(root, "git", "config", "user.email", "a@b")
    _run(root, "git", "config", "user.name", "n")
    _run(root, "git", "add", "notes.md", "a.txt")
    _run(root, "git", "commit", "-qm", "i")
    _write(root / "a.txt", "hello\nmore\n")
    _run(root, "tar", "cf", "x.tar", "notes.md")
    _run(root, "git", "init", "-q", "evilrepo")
    _run(root, "git", "-C", "evilrepo", "config", "core.fsmonitor", f"{root}/evil.sh")


def _write(path: Path, text: str, *, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)


def _run(root: Path, *words: str) -> None:
    subprocess.run(words, cwd=root, check=True, capture_output=True)
