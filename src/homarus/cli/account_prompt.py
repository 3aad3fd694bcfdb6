"""Ask in a terminal for the settings that a new account of a channel still needs."""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from homarus.config.account_form import AccountField, account_fields
from homarus.config.json5_document import KeyPath
from homarus.core.errors import ConfigError
from homarus.core.message import Json
from homarus.core.text import one_line

if TYPE_CHECKING:
    from homarus.channels.registry import ChannelModule

T = TypeVar("T")


def add_with_prompts(
    channel: str,
    module: "ChannelModule",
    values: dict[KeyPath, Json],
    add: Callable[[], T],
    get_section: Callable[[], Mapping[str, Any]],
) -> T:
    """Call `add`, and ask for the next missing setting as long as the account is not complete.

    `get_section` returns the section that the last `add` would have written. Raises the error of
    the last `add` when nothing is missing: then a setting is wrong.
    """
    asked = set[str]()
    while True:
        try:
            return add()
        except ConfigError as exc:
            field = _next_field(account_fields(module.Settings), get_section(), asked, exc)
            if field is None:
                raise
        if not asked:
            click.echo(f"{getattr(module, 'LABEL', channel)} needs more settings. Ctrl-C cancels.")
        asked.add(field.key)
        if (answer := _ask(field)) is not None:
            values[field.key,] = answer


def _next_field(
    fields: Iterable[AccountField],
    section: Mapping[str, Any],
    asked: set[str],
    error: ConfigError,
) -> AccountField | None:
    """Return a missing setting: the one that the error names, else the next that is needed."""
    missing = [
        one
        for one in fields
        if one.key not in asked and not section.get(one.key) and one.is_needed(section)
    ]
    named = error.key.rpartition(".")[2]
    by_need = sorted(missing, key=lambda one: (one.key != named, one.is_optional))
    return by_need[0] if by_need else None


def _ask(field: AccountField) -> Json:
    """Return the answer; None for an optional setting that stays unset."""
    if field.help:
        click.echo(f"  {one_line(field.help, 300)}")
    title = f"{field.title} (empty for none)" if field.is_optional else field.title
    default = "" if field.is_optional else None
    text: str = click.prompt(
        title, default=default, hide_input=field.is_secret, show_default=False, type=str
    )
    if field.is_optional and not text.strip():
        return None
    return field.parse_answer(text)
