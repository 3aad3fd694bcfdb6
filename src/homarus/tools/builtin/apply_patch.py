"""Apply a patch to several files at once: all of it, or nothing."""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from typing import Annotated, Final, TypeAlias

from pydantic import Field

from homarus.core.errors import ToolError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json, Text
from homarus.core.text import fold_name
from homarus.policy.tool_call import Effect
from homarus.tools.builtin.file_delete import move_to_trash
from homarus.tools.effects import write_effects
from homarus.tools.patch_apply import apply_hunks
from homarus.tools.patch_format import FilePatch, parse_patch
from homarus.tools.pathname import format_path
from homarus.tools.rooted_fs import OpenFile, RootedFs
from homarus.tools.sources import ToolSourceContext
from homarus.tools.tool import Tool, ToolContext, ToolOutput, tool
from homarus.tools.trash import make_batch

MAX_FILE_BYTES: Final = 10_000_000
# What allows commands allows patches, which a command could apply as well.
_EXEC_NAMES: Final = ("exec", "bash", "shell", "code_run", "group:runtime")
# Returns the folder of a path, and what its paths start with in results.
FindFolder: TypeAlias = Callable[[str], tuple[RootedFs, str]]


def tools(context: ToolSourceContext) -> Sequence[Tool]:
    """Return the tool where the config enables it; the policy keeps it from models of others."""
    config = context.get_tools_config("exec").exec.apply_patch
    return (make_apply_patch(workspace_only=config.workspace_only),) if config.enabled else ()


def make_apply_patch(*, workspace_only: bool) -> Tool:
    """Return the tool; without `workspace_only` it reaches what `write` reaches."""

    @tool(group="fs", serial=True, effects=_patch_effects, implied_by=_EXEC_NAMES)
    async def apply_patch(
        ctx: ToolContext,
        input: Annotated[str, Field(description="The patch")],  # noqa: A002 - OpenClaw's name
    ) -> ToolOutput:
        """Change several files by one patch; nothing is written unless all of it fits.

        *** Begin Patch
        *** Update File: path (next line, to rename: *** Move to: path)
        @@ line before the change (optional)
         unchanged line
        -old line
        +new line
        *** Add File: path
        +line
        *** Delete File: path
        *** End Patch
        """
        changes = parse_patch(input)

        def find_folder(path: str) -> tuple[RootedFs, str]:
            return (ctx.files, "") if workspace_only else ctx.folder_to_write(path)

        done = await asyncio.to_thread(_apply, changes, find_folder)
        text = "Applied the patch:" + "".join(
            f"\n{sign} {format_path(path)}" for sign, path in done
        )
        return ToolOutput((Text(text),), {"summary": _summarize(done)})

    return apply_patch


async def _patch_effects(ctx: ToolContext, input: str = "") -> frozenset[Effect]:  # noqa: A002 - the name
    """Return the effects of every file of a patch; of one that cannot be parsed none."""
    effects: frozenset[Effect] = frozenset()
    try:
        changes = parse_patch(input)
    except ToolError:
        return effects  # it changes nothing
    for change in changes:
        for path in filter(None, (change.path, change.move_to)):
            effects |= await write_effects(ctx, path)
    return effects


def _summarize(done: Iterable[tuple[str, str]]) -> Json:
    names = {"A": "added", "M": "modified", "D": "deleted"}
    pairs = list(done)
    return {name: [path for sign, path in pairs if sign == mark] for mark, name in names.items()}


@dataclass(frozen=True, slots=True)
class _Step:
    """One change that was checked: the file as it was read, and what becomes of it.

    `target` is the path that is written, "" for a deletion; `source` the file that was read, None
    for a new one.
    """

    folder: RootedFs
    prefix: str
    path: str
    target: str
    target_folder: RootedFs
    data: bytes
    source: OpenFile | None
    before: bytes


def _apply(changes: Sequence[FilePatch], find_folder: FindFolder) -> list[tuple[str, str]]:
    """Check everything, then write it. Returns `A`, `M` or `D` with each path."""
    with ExitStack() as opened:  # while a file is open, no other is mistaken for it
        steps = _check(changes, find_folder, opened)
        undo: list[Callable[[], object]] = []
        try:
            for step in steps:
                if step.target:
                    _write(step, undo)
            batch = make_batch(time.time())
            for step in steps:
                if step.source and step.target != step.path:
                    _remove(step, batch, undo)
        except ToolError:
            for action in reversed(undo):
                with suppress(ToolError):
                    action()
            raise
    return [found for step in steps for found in _describe(step)]


def _describe(step: _Step) -> Iterable[tuple[str, str]]:
    if not step.source:
        yield "A", step.target
    elif step.target == step.path:
        yield "M", step.path
    else:
        if step.target:
            yield "A", step.target
        yield "D", step.path


def _check(changes: Sequence[FilePatch], find_folder: FindFolder, opened: ExitStack) -> list[_Step]:
    """Return the steps of a patch that fits completely. Nothing is written."""
    steps, taken = list[_Step](), set[tuple[str, str]]()
    for change in changes:
        folder, prefix = find_folder(change.path)
        existing = folder.check_write(change.path)
        _take(taken, folder, existing.path, change.path)
        source, before, data = None, b"", _encode(change.content, change.path)
        if change.kind == "add":
            if existing.stat:
                raise _exists(change.path)
        else:
            source = opened.enter_context(folder.open_read(change.path))
            data = before = _read(source, change.path)
        if change.hunks:
            text = _decode(before, change.path)
            patched = apply_hunks(text, change.hunks, name=format_path(change.path))
            data = _encode(patched, change.path)
        target, target_folder = ("" if change.kind == "delete" else change.path), folder
        if change.move_to:
            target = change.move_to
            target_folder, _ = find_folder(target)
            moved = target_folder.check_write(target)
            _take(taken, target_folder, moved.path, target)
            if moved.stat:
                raise _exists(target)
        steps.append(
            _Step(folder, prefix, change.path, target, target_folder, data, source, before)
        )
    return steps


def _take(taken: set[tuple[str, str]], folder: RootedFs, path: str, given: str) -> None:
    """Refuse a file that the patch names twice, under any name."""
    key = (str(folder.root), "/".join(map(fold_name, path.split("/"))))
    if key in taken:
        raise ToolError(f"{format_path(given)} is in the patch twice", fix="put its hunks together")
    taken.add(key)


def _exists(path: str) -> ToolError:
    return ToolError(
        f"{format_path(path)} exists already", fix="use *** Update File, or another name"
    )


def _read(source: OpenFile, path: str) -> bytes:
    data = source.file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        limit = f"{MAX_FILE_BYTES // 1_000_000} MB"
        raise ToolError(f"{format_path(path)} is over {limit}: too big for a patch")
    return data


def _decode(data: bytes, path: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as exc:
        raise ToolError(f"{format_path(path)} is not UTF-8 text: it would be damaged") from exc


def _encode(text: str, path: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as exc:
        broken = f"half a character (U+{ord(text[exc.start]):04X})"
        raise ToolError(f"the new text of {format_path(path)} holds {broken}") from exc


def _write(step: _Step, undo: list[Callable[[], object]]) -> None:
    """Write one file, and note how to undo that."""
    folder, target, source = step.target_folder, step.target, step.source
    if source and target == step.path:
        folder.write_atomic(target, step.data, seen=source.stat)
        undo.append(lambda: folder.write_atomic(target, step.before))
        return
    folder.write_atomic(target, step.data, new=True, like=source.stat if source else None)
    undo.append(lambda: folder.remove(target, seen=folder.stat(target)))


def _remove(step: _Step, batch: str, undo: list[Callable[[], object]]) -> None:
    """Remove a file that was moved; one that was deleted goes to the trash."""
    folder, path, source = step.folder, step.path, step.source
    if source is None:
        return
    if step.target or step.prefix == "/":  # outside the workspace there is no trash
        folder.remove(path, seen=source.stat)
    else:
        move_to_trash(folder, path, step.prefix, batch)
    undo.append(lambda: folder.write_atomic(path, step.before, new=True, like=source.stat))
