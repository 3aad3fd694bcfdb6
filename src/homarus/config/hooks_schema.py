"""The typed section `hooks` of the config: webhooks that start runs, and internal hooks.

What a gateway cannot start with (a missing token, rules that contradict each other) is checked by
gateway/hooks/settings.py, because it depends on other sections.
"""

import re
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import AfterValidator, Field, Strict
from pydantic_core import PydanticCustomError

from homarus.config.internal_hooks_schema import InternalHooksConfig
from homarus.config.section import ConfigSection, NonEmptyStr, PositiveInt, StrTuple, Thinking

DEFAULT_PATH: Final = "/hooks"
DEFAULT_MAX_BODY_BYTES: Final = 262_144
PRESETS: Final = ("github", "gmail")
_PATH: Final = re.compile(r"/?[A-Za-z0-9._~-]+(?:/[A-Za-z0-9._~-]+)*/?", re.ASCII)


def _check_path(text: str) -> str:
    """Return the base path with one slash before it; `/` would take every request."""
    path = text.strip()
    if not _PATH.fullmatch(path) or {"..", "."} & {*path.split("/")}:
        message = f"{text!r} is not a path below which hooks can be served, such as {DEFAULT_PATH}"
        raise PydanticCustomError("path", "{message}", {"message": message})
    return f"/{path.strip('/')}"


def _check_presets(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if name not in PRESETS:
            message = f"there is no preset {name!r}: the presets are {', '.join(PRESETS)}"
            raise PydanticCustomError("preset", "{message}", {"message": message})
    return names


WakeModeName: TypeAlias = Literal["now", "next-heartbeat"]
HookPath: TypeAlias = Annotated[str, AfterValidator(_check_path)]
PresetNames: TypeAlias = Annotated[StrTuple, AfterValidator(_check_presets)]


class HookMatchConfig(ConfigSection):
    """Which requests a mapping is for: their path below `hooks.path`, and `source` in the body."""

    path: str | None = None
    source: str | None = None


class HookTransformConfig(ConfigSection):
    """A Python function that makes the action: its file in `hooks.transformsDir`, and its name."""

    module: NonEmptyStr
    export: NonEmptyStr | None = None


class HookMappingConfig(ConfigSection):
    """What a request to a path of the owner's choice does; texts may have placeholders."""

    id: str | None = None
    match: HookMatchConfig = HookMatchConfig.model_construct()
    action: Literal["wake", "agent"] = "agent"
    wake_mode: WakeModeName = "now"
    name: str | None = None
    agent_id: str | None = None
    session_key: str | None = None
    message_template: str | None = None
    text_template: str | None = None
    deliver: bool | None = None
    allow_unsafe_external_content: bool = False
    channel: str | None = None
    to: str | None = None
    model: str | None = None
    thinking: str | None = None
    timeout_seconds: PositiveInt | None = None
    transform: HookTransformConfig | None = None


class GmailHookConfig(ConfigSection):
    """What the preset `gmail` does with a mail; the program that watches the mailbox is not ours.

    `include_body` and `max_bytes` limit what of a mail's text the agent gets.
    """

    model: NonEmptyStr | None = None
    thinking: Thinking | None = None
    include_body: bool = True
    max_bytes: PositiveInt = 20_000
    allow_unsafe_external_content: bool = False


class GithubHookConfig(ConfigSection):
    """The preset `github`: the secret that its webhooks are signed with."""

    secret: str | None = Field(None, repr=False)


class HooksConfig(ConfigSection):
    """Webhooks, which wake the agent or start a run, and internal hooks: code that events call."""

    enabled: bool = False
    path: HookPath = DEFAULT_PATH
    token: str | None = Field(None, repr=False)
    max_body_bytes: PositiveInt = DEFAULT_MAX_BODY_BYTES
    default_session_key: str | None = None
    allow_request_session_key: bool = False
    allowed_session_key_prefixes: StrTuple | None = None
    allowed_agent_ids: StrTuple | None = None
    presets: PresetNames = ()
    transforms_dir: str | None = None
    mappings: Annotated[tuple[HookMappingConfig, ...], Strict(strict=False)] = ()
    gmail: GmailHookConfig = GmailHookConfig.model_construct()
    github: GithubHookConfig = GithubHookConfig.model_construct()
    internal: InternalHooksConfig = InternalHooksConfig.model_construct()
