"""Which internal hooks there are, which of them run, and why the others do not."""

from pathlib import Path
from typing import Any

import pytest

from homarus.agent.internal_hooks.catalog import BUNDLED_FOLDER
from homarus.agent.internal_hooks.hook import HookTier
from homarus.agent.internal_hooks.hook_status import HookStatus
from tests.unit.agent.hook_builders import (
    HANDLER,
    MANAGED,
    WORKSPACE,
    make_catalog,
    switched_on,
    write_hook,
)


def only(home: Path, tree: dict[str, Any] | None = None, **options: Any) -> HookStatus:
    [status] = make_catalog(home, tree, **options).load().hooks
    return status


def enable(home: Path, name: str, tree: dict[str, Any] | None = None) -> dict[str, Any]:
    """Enable a hook as `homarus hooks enable` does; return the config tree."""
    tree = tree or switched_on(entries={name: {"enabled": True}})
    catalog = make_catalog(home, tree)
    found = catalog.load()
    status = next(each for each in (*found.waiting, *found.hooks) if each.hook.name == name)
    assert status.files
    catalog.enabled.enable(status.hook.identity, status.files.digest, 1)
    return tree


def test_managed_hook_runs_when_internal_hooks_are_on(tmp_path: Path) -> None:
    write_hook(tmp_path / MANAGED, "greet", events='["command:new", "session"]')
    status = only(tmp_path)
    assert (status.state, status.hook.tier) == ("ready", HookTier.MANAGED)
    assert status.hook.events == ("command:new", "session")


@pytest.mark.parametrize("enabled", [None, False])
def test_hooks_without_the_switch_do_not_run(tmp_path: Path, enabled: bool | None) -> None:
    write_hook(tmp_path / MANAGED, "greet")
    internal = {} if enabled is None else {"enabled": enabled}
    status = only(tmp_path, {"hooks": {"internal": internal}})
    assert status.state == "disabled" and "hooks.internal.enabled" in status.reasons[0].message


@pytest.mark.parametrize(
    ("internal", "ready"),
    [
        ({}, {"boot-md"}),
        ({"enabled": False}, set()),
        ({"entries": {"boot-md": {"enabled": False}}}, set()),
        (
            {"enabled": True},
            {"boot-md", "bootstrap-extra-files", "command-logger", "session-memory"},
        ),
        (
            {"enabled": True, "entries": {"session-memory": {"enabled": False}}},
            {"boot-md", "bootstrap-extra-files", "command-logger"},
        ),
    ],
)
def test_bundled_hooks_follow_the_switch(
    tmp_path: Path, internal: dict[str, Any], ready: set[str]
) -> None:
    tree = {"hooks": {"internal": internal}}
    found = make_catalog(tmp_path, tree, bundled=BUNDLED_FOLDER).load()
    assert len(found.hooks) == 4 and found.problems == ()
    assert {each.hook.name for each in found.hooks if each.is_ready} == ready


def test_later_tier_overrides_earlier_ones(tmp_path: Path) -> None:
    write_hook(tmp_path / "bundled", "same")
    write_hook(tmp_path / MANAGED, "same")
    status = only(tmp_path, bundled=tmp_path / "bundled")
    assert status.hook.tier is HookTier.MANAGED and status.overrides == (HookTier.BUNDLED,)


def test_workspace_hook_runs_only_after_it_was_enabled(tmp_path: Path) -> None:
    write_hook(tmp_path / WORKSPACE, "local")
    status = only(tmp_path)
    assert status.state == "not enabled" and "homarus hooks enable local" in status.reasons[0].fix
    # The setting alone, which a copied config may have, enables no files.
    assert only(tmp_path, switched_on(entries={"local": {"enabled": True}})).state == "not enabled"
    assert only(tmp_path, enable(tmp_path, "local")).state == "ready"


@pytest.mark.parametrize("changed", ["handler.py", "HOOK.md", "new.sh", "lib/data.txt"])
def test_workspace_hook_with_changed_files_does_not_run(tmp_path: Path, changed: str) -> None:
    folder = write_hook(tmp_path / WORKSPACE, "local")
    tree = enable(tmp_path, "local")
    file = folder / changed
    file.parent.mkdir(exist_ok=True)
    before = file.read_text() if file.exists() else ""
    file.write_text(f"{before}# changed\n")
    status = only(tmp_path, tree)
    assert status.state == "not enabled" and "have changed" in status.reasons[0].message
    enable(tmp_path, "local", tree)
    assert only(tmp_path, tree).state == "ready"


def test_workspace_hook_that_is_not_enabled_replaces_no_other(tmp_path: Path) -> None:
    write_hook(tmp_path / "bundled", "same")
    write_hook(tmp_path / WORKSPACE, "same", "def handle(event):\n    raise SystemExit\n")
    tree = switched_on(entries={"same": {"enabled": True}})
    found = make_catalog(tmp_path, tree, bundled=tmp_path / "bundled").load()
    assert [(each.hook.tier, each.state) for each in found.hooks] == [(HookTier.BUNDLED, "ready")]
    assert "the bundled hook of the same name is used" in found.problems[0].message
    enable(tmp_path, "same", tree)
    status = only(tmp_path, tree, bundled=tmp_path / "bundled")
    assert (status.hook.tier, status.state) == (HookTier.WORKSPACE, "ready")


def test_extra_folder_hook_needs_to_be_enabled(tmp_path: Path) -> None:
    write_hook(tmp_path / "more", "extra")
    tree = switched_on(load={"extraDirs": ["~/more"]}, entries={"extra": {"enabled": True}})
    assert only(tmp_path, tree).state == "not enabled"
    enable(tmp_path, "extra", tree)
    assert only(tmp_path, tree).state == "ready"


def test_missing_extra_folder_is_a_problem(tmp_path: Path) -> None:
    [problem] = make_catalog(tmp_path, switched_on(load={"extraDirs": ["~/gone"]})).load().problems
    assert "no such folder" in problem.message and "hooks.internal.load.extraDirs" in problem.fix


def test_managed_folder_that_leads_into_the_workspace_is_not_trusted(tmp_path: Path) -> None:
    write_hook(tmp_path / WORKSPACE, "sly")
    (tmp_path / MANAGED).symlink_to(tmp_path / WORKSPACE)
    [status] = make_catalog(tmp_path).load().hooks
    assert status.state == "not enabled"


@pytest.mark.parametrize("file", ["handler.ts", "handler.js", "index.js"])
def test_script_of_node_is_listed_as_not_runnable(tmp_path: Path, file: str) -> None:
    write_hook(tmp_path / MANAGED, "theirs", "export default async () => {};", file=file)
    status = only(tmp_path)
    assert status.state == "not runnable"
    assert file in status.reasons[0].message and "handler.py" in status.reasons[0].fix


@pytest.mark.parametrize(
    ("handler", "reason"),
    [
        (None, "no handler.py"),
        ("def other(event): ...\n", "no function handle"),
        ("def handle(event:\n", "line 1 of handler.py is not Python"),
        ("# \x00\n", "not Python"),
    ],
)
def test_broken_handler_is_explained(tmp_path: Path, handler: str | None, reason: str) -> None:
    write_hook(tmp_path / MANAGED, "broken", handler)
    status = only(tmp_path)
    assert status.state == "not runnable" and reason in status.reasons[0].message


def test_handler_that_every_user_may_write_does_not_run(tmp_path: Path) -> None:
    folder = write_hook(tmp_path / MANAGED, "open")
    (folder / "handler.py").chmod(0o666)
    status = only(tmp_path)
    assert status.state == "not runnable" and "every user may write" in status.reasons[0].message
    (folder / "handler.py").chmod(0o644)
    folder.chmod(0o777)
    assert only(tmp_path).state == "not runnable"


def test_link_in_a_hook_is_refused(tmp_path: Path) -> None:
    folder = write_hook(tmp_path / MANAGED, "linked", None)
    (tmp_path / "elsewhere.py").write_text(HANDLER)
    (folder / "handler.py").symlink_to(tmp_path / "elsewhere.py")
    status = only(tmp_path)
    assert status.state == "not runnable" and "is a link" in status.reasons[0].message


def test_requirements_are_those_of_skills(tmp_path: Path) -> None:
    needs = '"requires": {"bins": ["no-such-program"], "env": ["TOKEN"], "config": ["a.b"]}'
    write_hook(tmp_path / MANAGED, "needy", metadata=f'{needs}, "os": ["plan9"]')
    status = only(tmp_path)
    assert status.state == "missing"
    text = " ".join(each.message for each in status.reasons)
    assert all(word in text for word in ("plan9", "no-such-program", "TOKEN", "a.b"))
    assert status.missing.env == ("TOKEN",)


def test_variable_of_the_entry_meets_a_requirement(tmp_path: Path) -> None:
    write_hook(tmp_path / MANAGED, "needy", metadata='"requires": {"env": ["TOKEN"]}')
    entries = {"needy": {"env": {"TOKEN": "x"}}}
    assert only(tmp_path, switched_on(entries=entries)).state == "ready"
    assert only(tmp_path, env={"TOKEN": "x"}).state == "ready"


def test_always_ignores_requirements(tmp_path: Path) -> None:
    needs = '"always": true, "requires": {"bins": ["no-such-program"]}'
    write_hook(tmp_path / MANAGED, "stubborn", metadata=needs)
    assert only(tmp_path).state == "ready"


def test_hook_key_names_the_settings(tmp_path: Path) -> None:
    write_hook(tmp_path / MANAGED, "long-name", metadata='"hookKey": "short"')
    status = only(tmp_path, switched_on(entries={"short": {"enabled": False, "colour": "red"}}))
    assert status.state == "disabled" and status.entry.own_settings == {"colour": "red"}


def test_unknown_events_are_named(tmp_path: Path) -> None:
    write_hook(tmp_path / MANAGED, "some", events='["command:new", "command:nwe"]')
    status = only(tmp_path)
    assert status.state == "ready" and "command:nwe does not exist" in status.notes[0]
    write_hook(tmp_path / MANAGED, "some", events='["nonsense"]')
    assert only(tmp_path).state == "not runnable"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("no frontmatter\n", "metadata"),
        ("---\nname: x\n---\n", "metadata"),
        ('---\nname: x\nmetadata: {"openclaw": {}}\n---\n', "events"),
        ('---\nname: a/b\nmetadata: {"openclaw": {"events": ["command"]}}\n---\n', "name"),
        (
            '---\nmetadata: {"openclaw": {"events": ["command"], "export": "f(1)"}}\n---\n',
            "export",
        ),
        ("---\nmetadata: [\n---\n", "YAML"),
    ],
)
def test_unusable_hook_file_is_a_problem(tmp_path: Path, text: str, reason: str) -> None:
    folder = write_hook(tmp_path / MANAGED, "bad")
    (folder / "HOOK.md").write_text(text)
    write_hook(tmp_path / MANAGED, "good")
    found = make_catalog(tmp_path).load()
    assert [each.hook.name for each in found.hooks] == ["good"]
    assert reason in found.problems[0].message


def test_configured_handler_in_the_state_directory_runs(tmp_path: Path) -> None:
    folder = tmp_path / ".openclaw" / "own"
    folder.mkdir(parents=True)
    (folder / "on_new.py").write_text("def react(event): ...\n")
    entry = {"event": "command:new", "module": "own/on_new.py", "export": "react"}
    status = only(tmp_path, switched_on(handlers=[entry]))
    assert (status.state, status.hook.name) == ("ready", "handlers[0]")
    assert status.hook.events == ("command:new",) and status.hook.export == "react"


@pytest.mark.parametrize("module", ["/etc/on_new.py", "../on_new.py", "own/on_new.ts"])
def test_configured_handler_elsewhere_is_reported(tmp_path: Path, module: str) -> None:
    tree = switched_on(handlers=[{"event": "command:new", "module": module}])
    found = make_catalog(tmp_path, tree).load()
    assert not found.hooks and "hooks.internal.handlers[0]" in found.problems[0].message


def test_configured_handler_in_the_workspace_does_not_run(tmp_path: Path) -> None:
    catalog = make_catalog(
        tmp_path, switched_on(handlers=[{"event": "command", "module": "workspace/x.py"}])
    )
    (tmp_path / ".openclaw" / "workspace" / "x.py").write_text(HANDLER)
    [status] = catalog.load().hooks
    assert status.state == "not runnable" and "the agent may write" in status.reasons[0].message


def test_hooks_of_other_agents_workspaces_are_reported(tmp_path: Path) -> None:
    write_hook(tmp_path / "second" / "hooks", "theirs")
    agents = {"list": [{"id": "main"}, {"id": "two", "workspace": str(tmp_path / "second")}]}
    found = make_catalog(tmp_path, {**switched_on(), "agents": agents}).load()
    assert not found.hooks and "default agent" in found.problems[0].message
