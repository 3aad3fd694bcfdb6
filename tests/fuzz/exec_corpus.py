"""`python -m tests.fuzz.exec_corpus`: how many ordinary commands of developers need a question.

The commands of `tests/data/developer_commands.txt` are judged with an allowlist that a developer
would write. No program runs: all of them are empty files in a folder of their own.
"""

import asyncio
import os
import sys
import tempfile
from pathlib import Path
from typing import Final

from homarus.tools.exec.allowlist import AllowEntry, read_entry
from homarus.tools.exec.evaluate import evaluate_plan
from homarus.tools.exec.plan import make_plan

_COMMANDS: Final = Path(__file__).parents[1] / "data" / "developer_commands.txt"
# Programs that only read, and the commands of the project, as a developer would list them.
_PROGRAMS: Final = (
    "git ls cat head tail wc sort uniq cut diff du df file stat which whoami hostname date uname"
    " uptime free nproc id ps pgrep lsof ss echo printf basename dirname realpath pwd tree grep rg"
    " find fd sed awk jq md5sum sha256sum tar mkdir touch curl ping dig ruff tsc gofmt shellcheck"
)
_LINES: Final = (
    "git fetch *",
    "git pull *",
    "git push *",
    "git checkout *",
    "git switch *",
    "git restore *",
    "git stash *",
    "git merge *",
    "git rebase *",
    "git cherry-pick *",
    "git reset --soft *",
    "cp *",
    "mv *",
    "npm test",
    "npm run *",
    "npm ls *",
    "npm outdated",
    "npm audit *",
    "npm ci",
    "npm --version",
    "node --version",
    "python3 --version",
    "python3 -m pytest",
    "python3 -m pip list",
    "npx tsc --noEmit",
    "yarn run *",
    "pnpm run *",
    "pytest *",
    "mypy *",
    "black *",
    "flake8 *",
    "isort *",
    "eslint *",
    "prettier *",
    "jest *",
    "pip list *",
    "pip show *",
    "pip freeze",
    "uv sync",
    "poetry install",
    "make *",
    "cargo build *",
    "cargo test *",
    "cargo check *",
    "cargo clippy *",
    "cargo fmt *",
    "cargo tree *",
    "go build *",
    "go test *",
    "go vet *",
    "go fmt *",
    "go mod tidy",
    "go version",
    "docker ps *",
    "docker images *",
    "docker logs *",
    "docker inspect *",
    "docker compose ps",
    "kubectl get *",
    "kubectl describe *",
    "kubectl logs *",
    "gh pr list *",
    "gh pr view *",
    "gh pr checks *",
    "gh issue list *",
    "gh run list *",
    "gh run view *",
    "terraform validate *",
    "terraform fmt *",
)


def read_commands() -> list[str]:
    """Return the commands of the corpus."""
    lines = _COMMANDS.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def find_asked() -> list[tuple[str, str]]:
    """Return the commands that need a question, each with the reason."""
    with tempfile.TemporaryDirectory() as folder:
        root, programs = Path(folder).resolve() / "ws", Path(folder).resolve() / "bin"
        root.mkdir()
        programs.mkdir(mode=0o755)
        names = {*_PROGRAMS.split(), *(line.split()[0] for line in (*_LINES, *read_commands()))}
        for name in names | {"nice", "timeout"}:
            (programs / name).write_text(name)
            (programs / name).chmod(0o755)
        return asyncio.run(_judge_all(root, str(programs)))


async def _judge_all(root: Path, path: str) -> list[tuple[str, str]]:
    entries = [AllowEntry(name, name) for name in _PROGRAMS.split()]
    entries += [entry for line in _LINES if (entry := read_entry(line))]
    asked: list[tuple[str, str]] = []
    folder_fd = os.open(root, os.O_RDONLY)
    try:
        for command in read_commands():
            plan = await make_plan(
                command,
                folder=str(root),
                folder_fd=folder_fd,
                workspace=root,
                env={"PATH": path, "HOME": "/nowhere"},
                requested_env={},
                timeout_s=60,
            )
            found = evaluate_plan(plan, entries)
            plan.close()
            if not found.is_satisfied:
                asked.append((command, found.reason))
    finally:
        os.close(folder_fd)
    return asked


def main() -> int:
    """Print the commands that need a question, and their share."""
    asked, total = find_asked(), len(read_commands())
    for command, reason in asked:
        print(f"  {command}: {reason}")
    print(f"{len(asked)} of {total} ordinary commands need a question ({len(asked) / total:.1%})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
