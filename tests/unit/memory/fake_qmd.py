"""A fake qmd: a script that keeps a list of collections and otherwise does what a test writes.

It is no search engine. What it is asked goes to `calls.jsonl` beside it; `<command>.py` beside it
is run in its place when there is one. How the real one behaves is tested in the peers tier.
"""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from homarus.config.memory import MemoryConfig, MemorySearchConfig
from homarus.memory.spec import MemorySpec

_SCRIPT = """#!{python} -IS
import json, os, pathlib, sys
here = pathlib.Path({here!r})
command, rest = sys.argv[1], sys.argv[2:]
with (here / "calls.jsonl").open("a") as calls:
    calls.write(json.dumps({{"argv": sys.argv[1:], "env": dict(os.environ), "cwd": os.getcwd()}}))
    calls.write("\\n")
own = here / (command.strip("-") + ".py")
if own.exists():
    exec(compile(own.read_text(), str(own), "exec"))
    sys.exit(0)
known = pathlib.Path(os.environ["XDG_CONFIG_HOME"], "known.json")
names = json.loads(known.read_text()) if known.exists() else []
def keep(names):
    whole = known.with_name("known.%d" % os.getpid())
    whole.write_text(json.dumps(names))
    whole.replace(known)
if command == "collection":
    action, *rest = [word for word in rest if word not in ("--index", "index", "--")]
    if action == "list":
        print("Collections (%d):\\n" % len(names))
        for name in names:
            print("%s (qmd://%s/)\\n  Pattern:  x\\n" % (name, name))
    elif action == "add":
        name = rest[0].removeprefix("--name=")
        if name in names:
            sys.exit("Collection '%s' already exists." % name)
        keep([*names, name])
    elif action == "remove":
        keep([name for name in names if name != rest[0]])
elif command == "--version":
    print("qmd 2.8.3 (fake)")
elif command == "update":
    print("[1/1] memory-dir (**/*.md)\\nIndexed: 2 new, 1 updated, 4 unchanged, 1 removed\\n")
elif command == "status":
    print("  Total:    7 files indexed\\n  Vectors:  0 embedded")
elif command in ("search", "vsearch", "query"):
    print("[]")
"""
WORDS_ALONE = MemorySearchConfig.model_validate({"store": {"vector": {"enabled": False}}})


@dataclass(frozen=True)
class FakeQmd:
    """The script, and a place for an agent that uses it."""

    folder: Path
    spec: MemorySpec

    def does(self, command: str, code: str) -> None:
        """What it does instead, as Python."""
        (self.folder / f"{command}.py").write_text(code, encoding="utf-8")

    def finds(self, *rows: dict[str, Any], command: str = "search") -> None:
        self.does(command, f"print({json.dumps(json.dumps(rows))})")

    def calls(self, command: str = "") -> list[dict[str, Any]]:
        file = self.folder / "calls.jsonl"
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        found = [json.loads(line) for line in lines]
        return [one for one in found if not command or one["argv"][0] == command]

    def forget(self) -> None:
        (self.folder / "calls.jsonl").unlink(missing_ok=True)


def fake_qmd(base: Path, **settings: Any) -> FakeQmd:
    """One, with a workspace; `settings` are those of `memory.qmd`."""
    folder, workspace = base / "bin", base / "ws"
    folder.mkdir(parents=True)
    (workspace / "memory").mkdir(parents=True)
    script = folder / "qmd"
    script.write_text(_SCRIPT.format(python=sys.executable, here=str(folder)), encoding="utf-8")
    script.chmod(0o755)
    return FakeQmd(folder, make_qmd_spec(base, {"command": str(script), **settings}))


def make_qmd_spec(
    base: Path, settings: dict[str, Any], search: MemorySearchConfig | None = None
) -> MemorySpec:
    # A slow machine is not a fake that hangs: tests of deadlines set their own.
    limits = {"timeoutMs": 60_000, **settings.get("limits", {})}
    written = {"backend": "qmd", "qmd": {**settings, "limits": limits}}
    return MemorySpec(
        agent="main",
        workspace=base / "ws",
        database=base / "memory" / "main.sqlite",
        agent_folder=base / "agents" / "main",
        models_cache=base / "models",
        home=base,
        search=search or WORDS_ALONE,
        settings=MemoryConfig.model_validate(written),
        env={"PATH": os.environ["PATH"], "OPENAI_API_KEY": "sk-secret", "QMD_CONFIG_DIR": "/else"},
    )
