"""The principal: a value that names an owner."""

from homarus.core.principal import OWNER, Principal


def test_principal_owner_is_a_constant() -> None:
    assert Principal() == OWNER == Principal("personal", "owner")


def test_principal_equality_compares_team_and_user() -> None:
    assert len({OWNER, Principal("acme", "owner"), Principal("personal", "ann")}) == 3
