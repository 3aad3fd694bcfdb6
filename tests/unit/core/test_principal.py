"""The principal: a value that names an owner."""

from homarus.core.principal import OWNER, Principal


def test_the_owner_of_a_personal_machine_is_a_constant() -> None:
    assert Principal() == OWNER == Principal("personal", "owner")


def test_principals_are_told_apart_by_team_and_user() -> None:
    assert len({OWNER, Principal("acme", "owner"), Principal("personal", "ann")}) == 3
