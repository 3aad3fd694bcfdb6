"""The exception tree: its drawing, its codes, its words."""

import inspect
import re

import pytest

from homarus.core import errors
from homarus.core.errors import (
    ConfigError,
    HomarusError,
    StateInUseError,
    ToolError,
    UnknownNameError,
    UserError,
)

CLASSES: dict[str, type[HomarusError]] = {
    name: kind
    for name, kind in vars(errors).items()
    if inspect.isclass(kind) and issubclass(kind, HomarusError)
}


def drawn() -> dict[str, str]:
    """The tree in the module's docstring: class → its parent there."""
    parents, path = dict[str, str](), list[str]()
    for line in (errors.__doc__ or "").splitlines():
        if found := re.match(r"([│ ]*)(?:[├└]── )?([A-Z]\w+)(?:\s|$)", line):
            if found[2] not in CLASSES:
                continue
            depth = 0 if "──" not in line else len(found[1]) // 4 + 1
            path[depth:] = [found[2]]
            parents[found[2]] = path[depth - 1] if depth else ""
    return parents


def test_errors_docstring_tree_matches_class_hierarchy() -> None:
    real = {
        name: "" if kind is HomarusError else kind.__mro__[1].__name__
        for name, kind in CLASSES.items()
    }
    assert drawn() == real


def test_error_codes_are_unique_and_prefixed_by_family() -> None:
    codes = {kind.code for kind in CLASSES.values()}
    assert len(codes) == len(CLASSES)
    families = [kind for kind in CLASSES.values() if kind.__mro__[1] is HomarusError]
    for family in families:
        for kind in CLASSES.values():
            if issubclass(kind, family) and kind is not family:
                assert kind.code.startswith(f"{family.code}.")


def test_error_exit_status_is_two_only_for_user_mistakes() -> None:
    twos = {name for name, kind in CLASSES.items() if kind.exit_status == 2}
    assert twos == {
        "UserError",
        "ConfigError",
        "UnknownNameError",
        "MissingExtraError",
        "StateInUseError",
        "InvalidRequestError",
        "ApprovalError",
        "UnknownApprovalError",
        "AmbiguousApprovalError",
        "ApprovalResolvedError",
        "ApprovalExpiredError",
        "ForeignApprovalError",
        "SpawnRefusedError",
    }
    assert StateInUseError("held").exit_status == 2


def test_error_text_contains_message_and_fix() -> None:
    assert str(ToolError("disk is full")) == "disk is full"
    assert str(ToolError("disk is full", fix="make room")) == "disk is full (make room)"


def test_config_error_text_contains_file_line_and_key() -> None:
    error = ConfigError("must be a number", file="a.json", line=3, key="agents.x", fix="write 1")
    assert error.message == "a.json:3: agents.x: must be a number"
    assert (error.file, error.line, error.key, error.reason) == (
        "a.json",
        3,
        "agents.x",
        "must be a number",
    )
    assert ConfigError("is empty", file="a.json").message == "a.json: is empty"
    assert ConfigError("is empty").message == "is empty"


def test_unknown_name_error_offers_closest_names() -> None:
    error = UnknownNameError("model", "gpt", ("gpt-5", "gpt-4"))
    assert str(error) == "unknown model 'gpt' (did you mean gpt-5 or gpt-4?)"
    assert UnknownNameError("model", "x", fix="homarus models list").fix == "homarus models list"
    assert UnknownNameError("model", "x").fix == ""


def test_missing_extra_is_caught_as_user_error() -> None:
    with pytest.raises(UserError):
        raise UnknownNameError("tool", "x")
