"""Ids on allowlists: compared completely, of their own service, and never names."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.channels.registry import find_traits
from homarus.policy import access
from homarus.policy.access import AllowlistMatch, is_allowed_in_group

person_id = partial(access.normalize_sender_id, find_traits=find_traits)
is_named = partial(access.is_named, find_traits=find_traits)
is_listed = partial(access.is_listed, find_traits=find_traits)


@pytest.mark.parametrize(
    ("channel", "written", "meant"),
    [
        ("telegram", "42", "42"),
        ("telegram", " telegram:42 ", "42"),
        ("telegram", "tg:42", "42"),
        ("telegram", "user:42", "42"),
        ("telegram", "-100123", "-100123"),
        ("telegram", "@ann", ""),
        ("telegram", "ann", ""),
        ("telegram", "discord:42", ""),
        ("telegram", "٤٢", ""),  # digits of another script
        ("telegram", "42\n", "42"),
        ("telegram", "", ""),
        ("telegram", "4" * 400, ""),
        ("discord", "tg:42", ""),
        ("discord", "user:42", "42"),
        ("signal", "+1 (555) 000-1", "+15550001"),
        ("signal", "15550001", "+15550001"),
        ("signal", "signal:+15550001", "+15550001"),
        ("signal", "uuid-of-somebody", "uuid-of-somebody"),
        ("whatsapp", "+15550001", "+15550001"),
        ("matrix", "@Ann:Example.ORG", "@Ann:example.org"),
        ("matrix", "@ann:example.org:8448", "@ann:example.org:8448"),
        ("matrix", "matrix:@ann:example.org", "@ann:example.org"),
        ("matrix", "!room:x.org", "!room:x.org"),
        ("matrix", "ann", ""),
        ("matrix", "@ann", ""),
        ("irc", "Ann!~a@Host", "ann!~a@host"),
        ("irc", "irc:Ann", "ann"),
        ("slack", "U123", "U123"),
        ("odd", "x", "x"),
    ],
)
def test_normalize_sender_id_follows_service(channel: str, written: str, meant: str) -> None:
    assert person_id(channel, written) == meant


@given(st.sampled_from(["telegram", "signal", "matrix", "irc", "slack"]), st.text(max_size=40))
def test_normalize_sender_id_is_idempotent(channel: str, written: str) -> None:
    once = person_id(channel, written)
    if not once.lower().startswith(("user:", f"{channel}:", "tg:")):
        assert person_id(channel, once) in {once, ""}


@given(st.text("0123456789+ -", max_size=14), st.text("0123456789+ -", max_size=14))
def test_normalize_sender_id_phone_numbers_compare_all_digits(a: str, b: str) -> None:
    if is_named("signal", a, [b]) and person_id("signal", a).startswith("+"):
        assert [ch for ch in a if ch.isdigit()] == [ch for ch in b if ch.isdigit()]


def test_is_listed_without_sender_id_is_false() -> None:
    assert not is_listed("telegram", "", ["*", ""])
    assert not is_listed("telegram", "ann", ["*", "ann", "@ann"])
    assert is_listed("telegram", "42", ["*"]) and not is_named("telegram", "42", ["*"])
    assert not is_listed("telegram", "42", [])


LISTED, UNLISTED = (
    AllowlistMatch(is_set=True, has_sender=True),
    AllowlistMatch(is_set=True, has_sender=False),
)


def test_is_allowed_in_group_by_star_needs_allowlist() -> None:
    assert is_allowed_in_group("allowlist", None, group="by-id")
    assert not is_allowed_in_group("allowlist", None, group="by-star")
    assert is_allowed_in_group("allowlist", LISTED, group="by-star")
    assert not is_allowed_in_group("allowlist", LISTED, group="")
    assert not is_allowed_in_group("allowlist", UNLISTED, group="by-id")


def test_is_allowed_in_group_open_policy_follows_own_list() -> None:
    assert is_allowed_in_group("open", None, group="")
    assert not is_allowed_in_group("open", UNLISTED, group="by-id")
    assert not is_allowed_in_group("disabled", LISTED, group="by-id")
