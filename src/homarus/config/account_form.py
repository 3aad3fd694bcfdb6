"""The questions that make a new account of a channel, from the schema of its settings.

A channel marks the settings that an account needs in their annotations:

    bot_token: Annotated[SecretStr | None, SettingPrompt("The bot's token")] = None

A channel that marks none is asked for its settings without a default; when it has none of these,
for its secrets, which are optional one by one.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from homarus.config.channels import SettingPrompt
from homarus.config.json5_document import parse_json5, to_plain
from homarus.config.json_schema import described_schema, inline_references
from homarus.core.errors import ConfigError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json


@dataclass(frozen=True, slots=True)
class AccountField:
    """One setting that an account needs; an optional one may be empty.

    The value of one that is not a text is written as in the config. `needed_if` is another setting,
    its value that is needed, and its default.
    """

    key: str
    title: str
    help: str = ""
    is_secret: bool = False
    is_optional: bool = False
    is_text: bool = True
    needed_if: tuple[str, str, Json] | None = None

    def is_needed(self, section: Mapping[str, Json]) -> bool:
        """Return whether an account with these settings needs this one."""
        if self.needed_if is None:
            return True
        other, value, default = self.needed_if
        return bool(section.get(other, default) == value)

    def parse_answer(self, text: str) -> Json:
        """Return the value that a person's answer means; a wrong one is refused with the config."""
        if self.is_text:
            return text.strip()
        try:
            return to_plain(parse_json5(text))
        except ConfigError:
            return text


def account_fields(settings: type[BaseModel]) -> tuple[AccountField, ...]:
    """Return the settings that a new account of a channel is asked for, in order."""
    schema = inline_references(described_schema(settings))
    specs, needed = schema["properties"], schema.get("required", ())
    prompts = {
        info.alias or name: (info, prompt)
        for name, info in settings.model_fields.items()
        if (prompt := _find_prompt(info))
    }
    if prompts:
        defaults = {
            info.alias or name: info.default for name, info in settings.model_fields.items()
        }
        return tuple(_marked(key, prompts[key][1], specs[key], defaults) for key in prompts)
    fields = [_unmarked(key, spec, is_needed=key in needed) for key, spec in specs.items()]
    required = tuple(field for field in fields if not field.is_optional)
    return required or tuple(field for field in fields if field.is_secret)


def _find_prompt(info: FieldInfo) -> SettingPrompt | None:
    return next((one for one in info.metadata if isinstance(one, SettingPrompt)), None)


def _marked(
    key: str, prompt: SettingPrompt, spec: Mapping[str, Any], defaults: Mapping[str, Any]
) -> AccountField:
    condition = prompt.needed_if
    return AccountField(
        key,
        prompt.title,
        prompt.help,
        is_secret=_is_secret(spec),
        is_optional=prompt.is_optional,
        is_text=_is_text(spec),
        needed_if=(*condition, defaults[condition[0]]) if condition else None,
    )


def _unmarked(key: str, spec: Mapping[str, Any], *, is_needed: bool) -> AccountField:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", key).lower()
    return AccountField(
        key,
        words[:1].upper() + words[1:],
        str(spec.get("description", "")),
        is_secret=_is_secret(spec),
        is_optional=not is_needed,
        is_text=_is_text(spec),
    )


def _is_secret(spec: Mapping[str, Any]) -> bool:
    return any(form.get("format") == "password" for form in _forms(spec))


def _is_text(spec: Mapping[str, Any]) -> bool:
    return any(form.get("type") == "string" for form in _forms(spec))


def _forms(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield spec
    for form in spec.get("anyOf", ()):
        yield from _forms(form)
