"""Extract run options and commands from a message."""

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.agent.commands.catalog import parse_command
from homarus.agent.commands.inline_directives import ParsedDirectives, extract_directives
from homarus.config.schema import Config
from homarus.core.errors import UserError
from homarus.core.message import Address, Image, Inbound, RunOptions
from homarus.providers.catalog import ModelInfo
from homarus.providers.model_router import ModelRouter

CONFIG = Config.model_validate(
    {"agents": {"defaults": {"models": {"mock/big": {"alias": "big"}, "mock/small": {}}}}}
)
PICTURE = Image("QUJD", "image/png")


class Known:
    """Models that know two names."""

    def check_typed(self, ref: str) -> ModelInfo:
        if ref not in {"big", "mock/big"}:
            raise UserError(f"unknown model {ref}")
        return ModelInfo("mock", "big")


def extract(
    text: str, authority: Any = "owner", config: Config = CONFIG, **more: Any
) -> ParsedDirectives:
    inbound = Inbound("1", Address("test", "1"), "ann", text, authority=authority, **more)
    models = cast("ModelRouter", Known())
    return extract_directives(inbound, parse_command(text), config, models, "agent:main:main")


def test_directives_in_text_become_run_options() -> None:
    found = extract(
        "/think high /verbose full please /reasoning on /model big answer /queue steer cap:2",
        options=RunOptions(thinking="low", timeout_s=5.0),
    )
    assert found.text == "please answer" and not found.commands
    assert found.options == RunOptions("mock/big", "high", 5.0, "full", "on")
    assert found.queue and found.queue.mode and found.queue.cap
    assert (found.queue.mode.value, found.queue.cap.value) == ("steer", 2)


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("/think high", [("think", "high")]),
        ("/t", [("think", "")]),
        ("/v on /think:max", [("think", "max"), ("verbose", "on")]),
        ("/big", [("model", "big")]),
        ("/model mock/big@work", [("model", "mock/big@work")]),
        ("/queue collect cap:3 drop:old", [("queue", "collect cap:3 drop:old")]),
        ("/queue", [("queue", "")]),
        ("/queue nonsense", [("queue", "nonsense")]),
        ("/think high /status", [("think", "high"), ("status", "")]),
        ("/elevated ask", [("elevated", "ask")]),
    ],
)
def test_directives_without_text_become_commands(text: str, given: list[tuple[str, str]]) -> None:
    assert list(extract(text).commands) == given


def test_directives_with_image_stay_a_message() -> None:
    found = extract("/think high", images=(PICTURE,))
    assert not found.commands and found.text == "" and found.options.thinking == "high"


def test_elevated_directive_needs_owner() -> None:
    found = extract("do it /elevated full now")
    assert (found.text, found.options.elevated) == ("do it now", "full")
    assert extract("do it /elevated full now", "authorised").text == "do it /elevated full now"
    assert extract("/elevated full", "authorised").commands == (
        ("elevated", "full"),
    )  # to be refused


@pytest.mark.parametrize(
    "text",
    [
        "use /model nobody now",
        "use /model big@work now",
        "go /queue cap:none on",
        "/model list all",
    ],
)
def test_directive_with_unknown_model_raises(text: str) -> None:
    with pytest.raises(UserError):
        extract(text)


@pytest.mark.parametrize(
    "text",
    ["see /usr/bin/think", "a/think b", "http://x/model", "/skill x y"],
)
def test_text_without_directives_is_unchanged(text: str) -> None:
    assert extract(text) == ParsedDirectives(text)


@given(st.text())
def test_directives_of_any_text_lose_no_word(text: str) -> None:
    try:
        found = extract(text)
    except UserError:
        return
    if "/" not in text:
        assert found.text == text.strip()
    assert len(found.text) <= len(text)


def test_exec_directive_in_text_holds_for_its_message() -> None:
    found = extract("/exec security=deny ask=always list files")
    assert found.text == "list files" and not found.commands
    assert found.options == RunOptions(exec_security="deny", exec_ask="always")
    assert extract("/exec host=gateway ask=off").commands == (("exec", "host=gateway ask=off"),)
    assert extract("/exec please").commands == (("exec", "please"),)


def test_exec_directive_needs_owner() -> None:
    text = "list files /exec security=full"
    assert extract(text, "authorised").text == text
    assert extract(text, "authorised").options == RunOptions()
    assert extract("/exec security=full", "authorised").commands == (("exec", "security=full"),)


@pytest.mark.parametrize(
    "text",
    [
        "ls /exec security=al",
        "ls /exec ask=",
        "ls /exec host=node",
        "ls /exec host=sandbox",
        "ls /exec node=laptop",
        "ls /elevated fulll",
    ],
)
def test_exec_directive_that_cannot_be_obeyed_is_refused(text: str) -> None:
    with pytest.raises(UserError):
        extract(text)


def test_exec_host_sandbox_is_accepted_in_session_with_sandbox() -> None:
    sandboxed = Config.model_validate({"agents": {"defaults": {"sandbox": {"mode": "all"}}}})
    found = extract("ls /exec host=sandbox", config=sandboxed)
    assert found.options.exec_host == "sandbox"
    with pytest.raises(UserError, match="this conversation has no sandbox"):
        extract("ls /exec host=sandbox")
