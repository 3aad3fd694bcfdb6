"""Each rule finds its violations in an example source, and nothing else."""

import pytest

from tests.style import rules


@pytest.mark.parametrize(
    ("source", "complaints"),
    [
        ("asyncio.create_task(x())", 1),
        ("loop.create_task(x())", 1),
        ("asyncio.get_running_loop().create_task(x())", 1),
        ("from asyncio import gather, sleep", 1),
        ("asyncio.ensure_future(x())\nasyncio.wait_for(x(), 1)\nasyncio.gather()", 3),
        ("start = asyncio.create_task", 1),
        ("loop = asyncio.new_event_loop()\nloop.create_task(x())", 0),
        ("async def f():\n async with asyncio.TaskGroup() as group:\n  group.create_task(x())", 0),
        ("async def f():\n async with task_group() as group:\n  group.create_task(x())", 0),
        ("async def f(group: asyncio.TaskGroup):\n group.create_task(x())", 0),
        ("def __init__(self, g: TaskGroup): self._g = g\ndef f(s): s._g.create_task(1)", 0),
        ("async def f():\n async with x() as group:\n  group.create_task(x())", 1),
    ],
)
def test_loose_tasks_finds_task_without_owner(source: str, complaints: int) -> None:
    assert len(rules.loose_tasks("a.py", source)) == complaints


@pytest.mark.parametrize(
    ("handler", "complaints"),
    [
        ("except Exception:\n pass", 1),
        ("except:\n pass", 1),
        ("except (OSError, Exception):\n pass", 1),
        ("except BaseException as e:\n print(e)", 1),
        ("except BaseException:\n undo()\n raise", 0),
        ("except Exception:\n undo()\n raise", 1),
        ("except OSError:\n pass", 0),
        ("except MyException:\n pass", 0),
    ],
)
def test_catch_alls_finds_handler_of_every_error(handler: str, complaints: int) -> None:
    assert len(rules.catch_alls("agent/run.py", f"try:\n x()\n{handler}")) == complaints


def test_catch_alls_finds_suppressed_exception() -> None:
    source = "with contextlib.suppress(Exception):\n x()"
    assert len(rules.catch_alls("agent/run.py", source)) == 1


def test_catch_alls_allows_the_listed_modules() -> None:
    for path in rules.CATCH_ALL:
        assert rules.catch_alls(path, "try:\n x()\nexcept Exception:\n pass") == []


@pytest.mark.parametrize(
    ("path", "source", "complaints"),
    [
        ("core/utils.py", "", 1),
        ("core/text_helpers.py", "", 1),
        ("common/text.py", "", 1),
        ("core/text.py", "class SessionManager: pass", 0),
        ("core/text.py", "class HTTPHandler: pass\nclass ToolImpl: pass", 1),
        ("core/text.py", "class Manager: pass\nclass _Handler: pass", 2),
        ("core/text.py", "class ServiceClient: pass", 0),
        ("core/service.py", "", 1),
        ("core/services.py", "class RunServices: pass", 0),
        ("core/service_client.py", "", 0),
        ("core/shared.py", "class Common: pass\nclass SharedEmbedder: pass", 2),
        ("core/text.py", "class Commonly: pass\nclass Shareholder: pass", 0),
        ("core/text.py", "def manager(): pass", 0),
    ],
)
def test_empty_names_finds_words_without_meaning(path: str, source: str, complaints: int) -> None:
    assert len(rules.empty_names(path, source)) == complaints


def test_repeated_classes_finds_name_in_two_modules() -> None:
    sources = {
        "core/a.py": "class Route: ...\nclass Other: ...\nclass _Line: ...",
        "core/b.py": "class Route: ...\nclass _Line: ...\nclass B:\n class Other: ...",
    }
    assert rules.repeated_classes(sources) == ["class Route: core/a.py, core/b.py"]


def test_repeated_classes_allows_settings_of_channels() -> None:
    sources = {f"channels/{name}.py": "class Settings: ..." for name in ("irc", "matrix")}
    assert rules.repeated_classes(sources) == []
    others = {f"{name}.py": "class Settings: ..." for name in ("http", "log")}
    assert len(rules.repeated_classes(sources | others)) == 1


def test_long_test_names_finds_more_than_70_characters() -> None:
    longest, longer = "test_" + "a" * 65, "test_" + "a" * 66
    source = f"def {longest}(): ...\nasync def {longer}(): ...\ndef {'b' * 99}(): ..."
    assert rules.long_test_names("a.py", source) == [f"a.py:2: {longer} (71)"]


def test_prints_finds_function_and_ignores_method() -> None:
    assert len(rules.prints("a.py", "print(1)\nconsole.print(1)")) == 1


def test_undocumented_finds_module_without_docstring() -> None:
    assert rules.undocumented("a.py", "x = 1")
    assert rules.undocumented("a.py", '"""Text."""')
    assert not rules.undocumented("a.py", '"""Text that is cut."""')


def test_terse_tests_finds_names_of_two_words() -> None:
    source = "def test_the_end_comes(): ...\ndef test_a_name_is_kept(): ...\ndef testing(): ..."
    assert rules.terse_tests("a.py", source) == []
    assert len(rules.terse_tests("a.py", "def test_works(): ...\ndef test_1_2(): ...")) == 2


@pytest.mark.parametrize(
    ("comment", "complaints"),
    [
        ("# noqa", 1),
        ("# noqa: S311", 1),
        ("# noqa: S311 - spreading load, not a secret", 0),
        ("# type: ignore", 1),
        ("# type: ignore[misc]", 1),
        ("# type: ignore[misc] # that is what is tested", 0),
        ("# type: ignore[misc, arg-type] - the stub is wrong", 0),
        ("# an ordinary comment", 0),
    ],
)
def test_unexplained_finds_silenced_check_without_reason(comment: str, complaints: int) -> None:
    assert len(rules.unexplained("a.py", f"x = 1  {comment}")) == complaints


@pytest.mark.parametrize(
    ("text", "complaints"),
    [
        ("/" + "root/.openclaw", 1),
        ("/" + "work/main", 1),
        ("/" + "home/jane/x", 1),
        ("/home/user/.openclaw", 0),
        ("artwork/mainly", 0),
        ("--index" + "-url x", 1),
        ("https://" + "pypi.corp.example/simple", 1),
        ("http" + "://10.0.0.1:8080/artifactory/x", 0),
        ("https://pypi.org/project/homarus", 0),
        ("https://example.com/v1", 0),
    ],
)
def test_local_facts_finds_paths_and_indexes(text: str, complaints: int) -> None:
    assert len(rules.local_facts("a.md", text)) == complaints


def test_functions_length_is_from_def_to_last_line() -> None:
    source = "def f():\n    x = 1\n\n    def g():\n        return 2\n    return g\n"
    assert dict(rules.functions(source)) == {"f": 6, "g": 2}
    assert rules.lines(source) == 6


def test_percentile_is_one_of_the_values() -> None:
    assert rules.percentile([1] * 95 + [9] * 5, 0.95) == 1
    assert rules.percentile([1] * 94 + [9] * 6, 0.95) == 9
    assert rules.percentile([], 0.95) == 0


def test_tracked_lists_files_with_and_without_git(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = {str(path.relative_to(rules.ROOT)) for path in rules.tracked()}
    assert {"pyproject.toml", "src/homarus/__init__.py"} <= names
    monkeypatch.setenv("PATH", "")
    walked = {str(path.relative_to(rules.ROOT)) for path in rules.tracked()}
    assert {"pyproject.toml", "src/homarus/__init__.py"} <= walked
    assert not [name for name in walked if name.startswith(".venv")]
