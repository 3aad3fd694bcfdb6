"""Which settings of an account a person is asked for, as the channel's schema says.

A setting is marked in its annotation:

    bot_token: Annotated[SecretStr | None, SettingPrompt("Bot token")] = None
"""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, SecretStr

from homarus.core.fast_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class SettingPrompt:
    """What a person is asked for a setting.

    `variable` is the one of the environment that the default account may have it in. `needed_if` is
    another setting and its value, without which this one is not asked for.
    """

    title: str
    help: str = ""
    variable: str = ""
    needed_if: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class PromptedSetting:
    """A setting that is asked for: its key, as in the config, and its prompt."""

    key: str
    prompt: SettingPrompt
    is_secret: bool


def prompted_settings(
    settings: type[BaseModel], given: Mapping[str, Any], env: Mapping[str, str]
) -> tuple[PromptedSetting, ...]:
    """Return the settings to ask for, in order: those that `given` and `env` do not have."""
    defaults = {info.alias or name: info.default for name, info in settings.model_fields.items()}
    found = list[PromptedSetting]()
    for name, info in settings.model_fields.items():
        key = info.alias or name
        prompt = next((one for one in info.metadata if isinstance(one, SettingPrompt)), None)
        if prompt is None or given.get(key) or env.get(prompt.variable):
            continue
        other, value = prompt.needed_if or ("", None)
        if value is None or given.get(other, defaults.get(other)) == value:
            is_secret = SecretStr in (info.annotation, *getattr(info.annotation, "__args__", ()))
            found.append(PromptedSetting(key, prompt, is_secret))
    return tuple(found)
