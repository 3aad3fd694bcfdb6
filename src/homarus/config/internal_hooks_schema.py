"""The section `hooks.internal` of the config: folders with code that events of a gateway call."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import ConfigDict, Field, Strict

from homarus.config.section import ConfigSection, NonEmptyStr, PositiveInt, StrTuple


class InternalHookEntryConfig(ConfigSection):
    """The settings of one hook; further keys are for the hook itself.

    `paths`, `patterns` and `files` are of `bootstrap-extra-files`, `messages` of `session-memory`.
    """

    model_config = ConfigDict(extra="allow")

    enabled: bool | None = None
    env: Mapping[str, str] = Field({}, repr=False)
    paths: StrTuple = ()
    patterns: StrTuple = ()
    files: StrTuple = ()
    messages: PositiveInt | None = None

    @property
    def own_settings(self) -> Mapping[str, Any]:
        """The keys that only the hook itself reads."""
        return self.model_extra or {}


class InternalHookHandlerConfig(ConfigSection):
    """A handler without a folder: the event, and a Python file in the state directory."""

    event: NonEmptyStr
    module: NonEmptyStr
    export: NonEmptyStr | None = None


class InternalHookLoadConfig(ConfigSection):
    """Further folders with hooks."""

    extra_dirs: StrTuple = ()


class InternalHooksConfig(ConfigSection):
    """Internal hooks. Without `enabled`, `boot-md` alone runs; false switches it off as well."""

    enabled: bool | None = None
    handlers: Annotated[tuple[InternalHookHandlerConfig, ...], Strict(strict=False)] = ()
    entries: Mapping[NonEmptyStr, InternalHookEntryConfig] = {}
    load: InternalHookLoadConfig = InternalHookLoadConfig.model_construct()
