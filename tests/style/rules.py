"""The conventions of this repository as functions from source text to violations."""

import ast
import math
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "homarus"

# Words that say nothing, wherever they are in a name.
EMPTY_WORDS = frozenset(["utils", "helpers", "misc", "impl"])
# Words that say nothing alone: they need a noun that says of what.
ROLE_WORDS = frozenset(
    ["handler", "service", "manager", "factory", "processor", "common", "shared"]
)
MAX_TEST_NAME_CHARS = 70
# Only these modules may catch every error, because they run code whose bugs must be contained.
CATCH_ALL = frozenset(
    [
        "tools/execute.py",
        "tools/sources.py",
        "core/tasks.py",
        "gateway/connection.py",
        "agent/internal_hooks/handler_main.py",
        "core/worker_main.py",
    ]
)
# Starts tasks that may be abandoned: a TaskGroup would wait for them for ever.
ABANDONS_TASKS = frozenset(["core/watchdog.py"])
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
    """Return every Python file below these folders."""
    return sorted(p for folder in folders for p in folder.rglob("*.py") if not _hidden(p))


def tracked() -> list[Path]:
    """Return every file of the repository, as git lists them, or by walking without git."""
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
    """Return the smallest value that at least `share` of the values do not exceed."""
    return sorted(values)[math.ceil(share * len(values)) - 1] if values else 0


def lines(source: str) -> int:
    return len(source.splitlines())


@lru_cache(maxsize=2)
def _tree(source: str) -> ast.Module:
    """Parse a module; the rules are held against one file after the other."""
    return ast.parse(source)


@lru_cache(maxsize=2)
def _nodes(source: str) -> Sequence[ast.AST]:
    return list(ast.walk(_tree(source)))


def functions(source: str) -> Iterator[tuple[str, int]]:
    """Yield every function with its length in lines, inner functions included."""
    for node in _nodes(source):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def empty_names(path: str, source: str) -> list[str]:
    """Find modules, packages and classes whose name says nothing."""
    parts = [part.removesuffix(".py") for part in Path(path).parts]
    found = [f"{path}: module name {part!r}" for part in parts if _is_empty_name(part)]
    classes = (node for node in _nodes(source) if isinstance(node, ast.ClassDef))
    return found + [f"{path}:{c.lineno}: class {c.name}" for c in classes if _is_empty_name(c.name)]


def _is_empty_name(name: str) -> bool:
    words = [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)]
    if any(word in EMPTY_WORDS or f"{word}s" in EMPTY_WORDS for word in words):
        return True
    return len(words) == 1 and words[0] in ROLE_WORDS


def repeated_classes(sources: Mapping[str, str]) -> list[str]:
    """Find public classes whose name is defined in several modules.

    A channel's `Settings` is excepted: the loader requires that name.
    """
    modules_by_name: dict[str, list[str]] = {}
    for path, source in sources.items():
        for node in _tree(source).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                if node.name == "Settings" and path.startswith("channels/"):
                    continue
                modules_by_name.setdefault(node.name, []).append(path)
    return [
        f"class {name}: {', '.join(paths)}"
        for name, paths in sorted(modules_by_name.items())
        if len(paths) > 1
    ]


def loose_tasks(path: str, source: str) -> list[str]:
    """Find tasks without an owner: anything but a TaskGroup's `create_task`."""
    if path in ABANDONS_TASKS or not any(name in source for name in _LOOSE):
        return []
    nodes = _nodes(source)
    groups = _task_groups(nodes)
    found = []
    for node in nodes:
        if isinstance(node, ast.Attribute) and node.attr in _LOOSE:
            owner = ast.unparse(node.value)
            owned = owner.split(".")[-1] in groups
            if owner == "asyncio" or (node.attr == "create_task" and not owned):
                found.append(f"{path}:{node.lineno}: {owner}.{node.attr}")
        elif isinstance(node, ast.ImportFrom) and node.module == "asyncio":
            taken = {alias.name for alias in node.names} & _LOOSE
            found += [f"{path}:{node.lineno}: from asyncio import {name}" for name in taken]
    return found


def _task_groups(nodes: Sequence[ast.AST]) -> set[str]:
    """Return the names of TaskGroups: by `async with … as`, assignment or annotation.

    A loop of `new_event_loop` owns its tasks too.
    """
    names = set[str]()
    for node in nodes:
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
    # `self._group = group` gives a group another name.
    for node in nodes:
        if isinstance(node, ast.Assign) and ast.unparse(node.value).split(".")[-1] in names:
            names.update(ast.unparse(target).split(".")[-1] for target in node.targets)
    return names


def catch_alls(path: str, source: str) -> list[str]:
    """Find handlers that catch every error, outside the modules that may."""
    if path in CATCH_ALL:
        return []
    found = []
    for node in _nodes(source):
        if isinstance(node, ast.ExceptHandler):
            caught = ast.unparse(node.type) if node.type else "everything"
            words = set(re.findall(r"\w+", caught))
            # A handler that ends in `raise` hides nothing.
            again = isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None
            if words & {"Exception", "everything"} or ("BaseException" in words and not again):
                found.append(f"{path}:{node.lineno}: except {caught}")
        elif isinstance(node, ast.Call) and "suppress" in (
            getattr(node.func, "id", ""),
            getattr(node.func, "attr", ""),
        ):
            everything = {"Exception", "BaseException"} & {ast.unparse(arg) for arg in node.args}
            found += [f"{path}:{node.lineno}: suppress({name})" for name in everything]
    return found


def prints(path: str, source: str) -> list[str]:
    return [
        f"{path}:{node.lineno}: print"
        for node in _nodes(source)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"print", "pprint"}
    ]


def undocumented(path: str, source: str) -> list[str]:
    """Find a module without a docstring of at least three words."""
    text = ast.get_docstring(_tree(source))
    return [] if text and len(text.split()) >= 3 else [f"{path}: no docstring that says what it is"]


def terse_tests(path: str, source: str) -> list[str]:
    """Find tests whose name has fewer than three words."""
    return [
        f"{path}:{node.lineno}: {node.name}"
        for node in _tests(source)
        if len(node.name.removeprefix("test_").split("_")) < 3
    ]


def long_test_names(path: str, source: str) -> list[str]:
    """Find tests whose name has more than 70 characters."""
    return [
        f"{path}:{node.lineno}: {node.name} ({len(node.name)})"
        for node in _tests(source)
        if len(node.name) > MAX_TEST_NAME_CHARS
    ]


def _tests(source: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in _nodes(source):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() if node.name.startswith("test_"):
                yield node
            case _:
                pass


def unexplained(path: str, source: str) -> list[str]:
    """Find a silenced check without its code, or without a reason after it."""
    return [
        f"{path}:{number}: {line.strip()}"
        for number, line in enumerate(source.splitlines(), 1)
        if (found := _SILENCED.search(line)) and not _REASON.match(found[1].strip())
    ]


def local_facts(path: str, text: str) -> list[str]:
    """Find what is true on one machine only: its paths, its package index."""
    return [
        f"{path}:{number}: {found[0]}"
        for number, line in enumerate(text.splitlines(), 1)
        if (found := _MACHINE.search(line) or _REGISTRY.search(line))
    ]
