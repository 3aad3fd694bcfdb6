"""Who a row belongs to: constants on a personal machine, real in a team, in every row."""

from homarus.core.value import dataclass


@dataclass(frozen=True, slots=True)
class Principal:
    """A team and a user in it."""

    team: str = "personal"
    user: str = "owner"


OWNER = Principal()
