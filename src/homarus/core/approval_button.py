"""The buttons that answer an approval or a question: the data that they send, and how it is parsed.

Only prompts for approvals have such buttons. No tool may send one: its label or the text above it
could say anything.
"""

import re
from collections.abc import Sequence
from typing import Final

from homarus.core.message import Button

_PREFIX: Final = "approve:"
_DATA: Final = re.compile(
    r"approve:([0-9A-Za-z-]{8,40}):(allow-once|allow-always|deny|choice-[1-9])", re.ASCII
)
_LABELS: Final = {"allow-once": "Allow once", "allow-always": "Always allow", "deny": "Deny"}


def make_approval_buttons(approval_id: str, *, offers_always: bool) -> tuple[Button, ...]:
    """Return the buttons under the prompt for an approval, in one row."""
    return tuple(
        Button(label, f"{_PREFIX}{approval_id}:{decision}")
        for decision, label in _LABELS.items()
        if offers_always or decision != "allow-always"
    )


def make_choice_buttons(question_id: str, choices: Sequence[str]) -> tuple[Button, ...]:
    """Return the buttons under a question, one for each choice."""
    return tuple(
        Button(choice, f"{_PREFIX}{question_id}:choice-{number}")
        for number, choice in enumerate(choices, 1)
    )


def is_approval_button(data: str) -> bool:
    """Return whether the data of a button is reserved for approvals."""
    return data.strip().lower().startswith(_PREFIX)


def parse_approval_button(data: str) -> str:
    """Return the id and the decision of a pressed button, as `/approve` takes them; else ""."""
    found = _DATA.fullmatch(data)
    return f"{found[1]} {found[2]}" if found else ""
