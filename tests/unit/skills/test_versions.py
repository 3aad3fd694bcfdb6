"""Semantic versions: their order, and the next one."""

import pytest

from homarus.core.errors import UserError
from homarus.skills.hub.versions import parse_version


def test_versions_are_ordered_as_semver_orders_them() -> None:
    texts = [
        "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta", "1.0.0-beta.2",
        "1.0.0-beta.11", "1.0.0-rc.1", "1.0.0", "1.2.0", "1.10.0", "2.0.0",
    ]  # fmt: skip
    versions = [parse_version(text) for text in texts]
    assert versions == sorted(versions)
    assert parse_version("1.0.0+a") == parse_version("1.0.0+b")


@pytest.mark.parametrize(
    "text", ["", "1", "1.0", "01.0.0", "1.0.0.0", "v1.0.0", "1.0.0-", "1.0.0\n"]
)
def test_version_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UserError):
        parse_version(text)


def test_next_patch_follows_the_version() -> None:
    assert parse_version("1.2.3").next_patch() == "1.2.4"
    assert parse_version("1.2.3-beta").next_patch() == "1.2.3"
