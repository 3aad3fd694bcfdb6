"""The rules of this repository as functions: source text in, complaints out."""

import ast
import math
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "homarus"

# Said nowhere else: names that tell a reader nothing.
EMPTY_NAMES = {"utils", "helpers", "common", "shared", "misc", "impl"} | {
    *("manager", "handler", "service", "factory", "processor")
}
# A bug in what runs here must not end its neighbours. Nowhere else is every error caught.
CATCH_ALL = frozenset(["tools/call.py", "core/tasks.py", "gateway/client.py", "plugins/loader.py"])
# Work that can be given up: a TaskGroup would wait for it for ever.
GIVES_UP = frozenset(["core/watchdog.py"])
_LOOSE = frozenset(["create_task", "ensure_future", "gather", "wait_for"])
_MACHINE = re.compile(
    r"/root/|/home/(?!user\b|you\b|me\b|ann\b|<)\w|/work/|/Users/(?!you\b|me\b)\w"
)
_REGISTRY = re.compile(
    r"https?://(?!pypi\.org|files\.pythonhosted\.org|registry\.npmjs\.org)"
    r"[\w.:@-]*(?:pypi|artifactory|nexus|devpi|registry|mirror)[\w.:-]*|--(?:extra-)?index-url",
    re.IGNORECASE,
)
_SILENCED = re.compile(r"#\s*(?:noqa|type:\s*ignore|pragma:\s*no cover)\b(.*)")
_REASON = re.compile(r"^(?::\s*[\w, ]+?|\[[\w, -]+\])\s*(?:-|#|—|–)\s*\w+")


def modules(*folders: Path) -> list[Path]:
    """Every Python file of ours below these folders."""
    return sorted(p for folder in folders for p in folder.rglob("*.py") if not _hidden(p))


def tracked() -> list[Path]:
    """Every file of the repository: as git lists them, or by walking where there is no git."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        listed = subprocess.run(listing, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    except (OSError, subprocess.CalledProcessError):
        return sorted(p for p in ROOT.rglob("*") if p.is_file() and not _hidden(p))
    return sorted(p for name in listed.split("\0") if name and (p := ROOT / name).is_file())


def _hidden(path: Path) -> bool:
    parts = path.relative_to(ROOT).parts
    skipped = {"__pycache__", "node_modules", "build", "dist"}
    return any(part in skipped or (part.startswith(".") and part != ".ci") for part in parts)


def percentile(values: Sequence[int], share: float) -> int:
    """The smallest value that at least `share` of them do not exceed."""
    return sorted(values)[math.ceil(share * len(values)) - 1] if values else 0


def lines(source: str) -> int:
    return len(source.splitlines())


def functions(source: str) -> Iterator[tuple[str, int]]:
    """Every function with its length in lines, its own inner functions included."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def empty_names(path: str, source: str) -> list[str]:
    """Modules, packages and classes named with a word that says nothing."""
    parts = [part.removesuffix(".py") for part in Path(path).parts]
    found = [f"{path}: module name {part!r}" for part in parts if _says_nothing(part)]
    classes = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef))
    return found + [f"{path}:{c.lineno}: class {c.name}" for c in classes if _says_nothing(c.name)]


def _says_nothing(name: str) -> bool:
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)
    return any(w.lower() in EMPTY_NAMES or f"{w.lower()}s" in EMPTY_NAMES for w in words)


def loose_tasks(path: str, source: str) -> list[str]:
    """Tasks nobody owns: anything but a TaskGroup's `create_task`."""
    if path in GIVES_UP:
        return []
    tree = ast.parse(source)
    groups = _task_groups(tree)
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in _LOOSE:
            owner = ast.unparse(node.value)
            owned = owner.split(".")[-1] in groups
            if owner == "asyncio" or (node.attr == "create_task" and not owned):
                found.append(f"{path}:{node.lineno}: {owner}.{node.attr}")
        elif isinstance(node, ast.ImportFrom) and node.module == "asyncio":
            taken = {alias.name for alias in node.names} & _LOOSE
            found += [f"{path}:{node.lineno}: from asyncio import {name}" for name in taken]
    return found


def _task_groups(tree: ast.AST) -> set[str]:
    """Names that hold a TaskGroup: by `async with … as`, by assignment, by annotation.

    A loop that somebody made owns its tasks too.
    """
    names = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.withitem) and node.optional_vars is not None:
            if re.search(r"TaskGroup|task_group\(", ast.unparse(node.context_expr)):
                names.add(ast.unparse(node.optional_vars))
        elif isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            if "TaskGroup" in ast.unparse(node.annotation):
                target = node.arg if isinstance(node, ast.arg) else ast.unparse(node.target)
                names.add(target.split(".")[-1])
        elif isinstance(node, ast.Assign) and re.search(
            r"TaskGroup\(|new_event_loop\(", ast.unparse(node.value)
        ):
            names.update(ast.unparse(target).split(".")[-1] for target in node.targets)
    # `self._group = group` hands a group on.
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and ast.unparse(node.value).split(".")[-1] in names:
            names.update(ast.unparse(target).split(".")[-1] for target in node.targets)
    return names


def catch_alls(path: str, source: str) -> list[str]:
    """Handlers that catch every error, outside the places that may."""
    if path in CATCH_ALL:
        return []
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ExceptHandler):
            caught = ast.unparse(node.type) if node.type else "everything"
            words = set(re.findall(r"\w+", caught))
            # To undo and raise again hides nothing.
            again = isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None
            if words & {"Exception", "everything"} or ("BaseException" in words and not again):
                found.append(f"{path}:{node.lineno}: except {caught}")
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
            everything = {"Exception", "BaseException"} & {ast.unparse(arg) for arg in node.args}
            found += [f"{path}:{node.lineno}: suppress({name})" for name in everything]
    return found


def prints(path: str, source: str) -> list[str]:
    return [
        f"{path}:{node.lineno}: print"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"print", "pprint"}
    ]


def undocumented(path: str, source: str) -> list[str]:
    """A module whose first words do not say what it owns."""
    told = ast.get_docstring(ast.parse(source))
    return [] if told and len(told.split()) >= 3 else [f"{path}: no docstring that says what it is"]


def terse_tests(path: str, source: str) -> list[str]:
    """Tests whose name is no sentence."""
    return [
        f"{path}:{node.lineno}: {node.name}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and len(node.name.removeprefix("test_").split("_")) < 3
    ]


def unexplained(path: str, source: str) -> list[str]:
    """A silenced check without its code or without a reason after it."""
    return [
        f"{path}:{number}: {line.strip()}"
        for number, line in enumerate(source.splitlines(), 1)
        if (found := _SILENCED.search(line)) and not _REASON.match(found[1].strip())
    ]


def local_facts(path: str, text: str) -> list[str]:
    """What is true on one machine only: its paths, its package index."""
    return [
        f"{path}:{number}: {found[0]}"
        for number, line in enumerate(text.splitlines(), 1)
        if (found := _MACHINE.search(line) or _REGISTRY.search(line))
    ]
