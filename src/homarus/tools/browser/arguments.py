"""Read the arguments of an action, each as one type. Raises ToolError with what is expected."""

from collections.abc import Mapping
from typing import Any, Final

from homarus.core.errors import ToolError
from homarus.core.message import Json

DEFAULT_MS: Final = 8_000
MAX_MS: Final = 60_000


class ActionArguments:
    """The arguments of one action by name; absent ones are "" or None."""

    def __init__(self, values: Mapping[str, Json]) -> None:
        self._values = values

    def text(self, name: str) -> str:
        """Return a text, "" without one."""
        value = self._values.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise _wrong(name, "text")
        return value

    def required(self, name: str, action: str) -> str:
        """Return a text that an action cannot do without."""
        if not (value := self.text(name)):
            raise ToolError(f"{action} needs {name}")
        return value

    def flag(self, name: str) -> bool:
        """Return a boolean, False without one."""
        return bool(self.choice(name))

    def choice(self, name: str) -> bool | None:
        """Return a boolean, None without one."""
        value = self._values.get(name)
        if value is not None and not isinstance(value, bool) and value not in ("true", "false"):
            raise _wrong(name, "true or false")
        return value == "true" if isinstance(value, str) else value

    def number(self, name: str, low: int, high: int) -> int | None:
        """Return a whole number within bounds, None without one."""
        value = self._values.get(name)
        if isinstance(value, str) and value.isdigit():  # of a query
            value = int(value[:9])
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _wrong(name, "a number")
        return max(low, min(high, int(value)))

    def timeout_ms(self) -> int:
        """Return how long the action may take."""
        return self.number("timeoutMs", 100, MAX_MS) or DEFAULT_MS

    def texts(self, name: str) -> list[str]:
        """Return a list of texts, empty without one."""
        value = self._values.get(name)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise _wrong(name, "a list of texts")
        return [str(each) for each in value]

    def objects(self, name: str) -> list[Mapping[str, Any]]:
        """Return a list of objects, empty without one."""
        value = self._values.get(name) or []
        if not isinstance(value, list) or not all(isinstance(each, Mapping) for each in value):
            raise _wrong(name, "a list of objects")
        return [each for each in value if isinstance(each, Mapping)]

    def nested(self, name: str) -> "ActionArguments":
        """Return the arguments in an object, none without one."""
        value = self._values.get(name) or {}
        if not isinstance(value, Mapping):
            raise _wrong(name, "an object")
        return ActionArguments(value)

    def has(self, name: str) -> bool:
        """Return whether there is a value."""
        return self._values.get(name) is not None


def _wrong(name: str, expected: str) -> ToolError:
    return ToolError(f"{name} is {expected}")
