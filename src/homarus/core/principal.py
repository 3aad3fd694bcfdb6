"""The owner of a stored row: constant on a personal machine, one per user in a team."""

from homarus.core.fast_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Principal:
    """A team and one of its users."""

    team: str = "personal"
    user: str = "owner"


OWNER = Principal()
