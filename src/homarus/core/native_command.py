"""Commands that a chat service lists and completes for its users."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from homarus.core.fast_dataclass import dataclass

OptionKind: TypeAlias = Literal["string", "integer", "number", "boolean"]


@dataclass(frozen=True, slots=True)
class CommandOption:
    """One typed option of a command; with `choices`, its value is one of them."""

    name: str
    description: str
    kind: OptionKind = "string"
    is_required: bool = False
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NativeCommand:
    """A command with its options, in the order in which a text has their values."""

    name: str
    description: str
    options: tuple[CommandOption, ...] = ()

    def format_text(self, values: Mapping[str, object]) -> str:
        """Return the command as a person would write it: `/name value value`."""
        given = (values.get(option.name) for option in self.options)
        words = [_format_value(value) for value in given if value not in {None, ""}]
        return " ".join([f"/{self.name}", *words])


def _format_value(value: object) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value).strip()
