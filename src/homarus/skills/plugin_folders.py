"""Find the folders with skills of OpenClaw's plugins, whose code is not loaded.

A plugin is a folder in `<state>/extensions`, or one that `plugins.load.paths` names, with an
`openclaw.plugin.json`; its `skills` are folders inside of it. A plugin that the config switches off
has no skills either.
"""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from homarus.config.paths import Paths, expand
from homarus.skills.find import SkillProblem, SkillRoot
from homarus.skills.skill import SkillTier

MANIFEST: Final = "openclaw.plugin.json"
_MAX_BYTES: Final = 256_000
_MAX_PLUGINS: Final = 300


def find_plugin_roots(
    paths: Paths, config_tree: Mapping[str, Any]
) -> Iterator[SkillRoot | SkillProblem]:
    """Yield the folders with skills of all plugins that are on, and what is wrong with others."""
    section = config_tree.get("plugins")
    settings = section if isinstance(section, dict) else {}
    if settings.get("enabled") is False:
        return
    for plugin in _plugin_folders(paths, settings):
        manifest = plugin / MANIFEST
        try:
            if not manifest.exists():
                continue
            name, folders = _read_manifest(manifest)
        except (OSError, ValueError) as exc:
            message = f"the manifest of a plugin cannot be used: {exc}"
            yield SkillProblem(SkillTier.PLUGIN, manifest, message, "install the plugin again")
            continue
        if _is_on(name or plugin.name, settings):
            yield from (_make_root(plugin, folder) for folder in folders)


def _plugin_folders(paths: Paths, settings: Mapping[str, Any]) -> Iterator[Path]:
    try:
        with os.scandir(paths.state / "extensions") as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir())
    except OSError:
        names = []
    yield from (paths.state / "extensions" / name for name in names[:_MAX_PLUGINS])
    load = settings.get("load")
    listed = load.get("paths") if isinstance(load, dict) else None
    for text in listed if isinstance(listed, list) else []:
        if isinstance(text, str) and text.strip():
            yield expand(text.strip(), paths.home)


def _read_manifest(file: Path) -> tuple[str, list[str]]:
    """Return a plugin's id and its folders with skills. Raises ValueError."""
    with file.open("rb") as opened:
        data = opened.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise ValueError(f"it has more than {_MAX_BYTES} bytes")
    tree = json.loads(data)
    if not isinstance(tree, dict):
        raise ValueError("it is not an object")  # noqa: TRY004 - as for any other wrong content
    folders, name = tree.get("skills", []), tree.get("id")
    if not isinstance(folders, list) or not all(isinstance(each, str) for each in folders):
        raise ValueError("its skills are not a list of folders")
    return name if isinstance(name, str) else "", folders


def _is_on(name: str, settings: Mapping[str, Any]) -> bool:
    allow, deny, entries = (settings.get(key) for key in ("allow", "deny", "entries"))
    entry = entries.get(name) if isinstance(entries, dict) else None
    return not (
        (isinstance(deny, list) and name in deny)
        or (isinstance(allow, list) and allow and name not in allow)
        or (isinstance(entry, dict) and entry.get("enabled") is False)
    )


def _make_root(plugin: Path, name: str) -> SkillRoot | SkillProblem:
    folder = plugin / name
    if not Path(os.path.realpath(folder)).is_relative_to(os.path.realpath(plugin)):
        message = "it leads out of the plugin that names it"
        return SkillProblem(SkillTier.PLUGIN, folder, message, "install the plugin again")
    return SkillRoot(SkillTier.PLUGIN, Path(os.path.normpath(folder)))
