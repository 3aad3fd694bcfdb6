"""The settings of webhooks after defaults, and what keeps a gateway from starting with them."""

from collections.abc import Iterator
from dataclasses import field
from pathlib import Path
from typing import Final, Literal, TypeAlias

from homarus.config.hooks_schema import GmailHookConfig, HookMappingConfig, HooksConfig
from homarus.config.paths import Paths
from homarus.core.errors import ConfigError, HomarusError
from homarus.core.fast_dataclass import dataclass
from homarus.gateway.auth import same_secret
from homarus.gateway.hook_requests import HookKeyRules, has_prefix
from homarus.gateway.hooks.templates import has_placeholder
from homarus.gateway.hooks.transform_files import find_transform

PresetName: TypeAlias = Literal["", "github", "gmail"]
OWN_PATHS: Final = frozenset({"wake", "agent"})  # that no mapping can have
MIN_SECRET_CHARS: Final = 16
_FIX: Final = "make one: openssl rand -hex 24"


@dataclass(frozen=True, slots=True)
class HookMapping:
    """A mapping of the config, or a preset, with the path that it is for; "" is every path."""

    config: HookMappingConfig
    path: str
    preset: PresetName = ""

    @property
    def name(self) -> str:
        """What people call it."""
        return self.config.name or self.config.id or self.preset or self.path


@dataclass(frozen=True, slots=True)
class HookSettings:
    """The webhooks of one config."""

    path: str
    token: str = field(repr=False)
    max_body_bytes: int
    key_rules: HookKeyRules
    allowed_agents: tuple[str, ...] | None
    mappings: tuple[HookMapping, ...]
    github_secret: str = field(repr=False)  # "" without the preset
    gmail: GmailHookConfig
    transforms: Path

    def find_mappings(self, path: str) -> tuple[HookMapping, ...]:
        """Return the mappings for a path, in their order."""
        return tuple(each for each in self.mappings if each.path in ("", path))


def resolve_hook_settings(hooks: HooksConfig, paths: Paths) -> HookSettings:
    """Return the settings of a config that `hook_refusals` has no objection to."""
    own = [HookMapping(each, (each.match.path or "").strip("/")) for each in hooks.mappings]
    names: tuple[PresetName, ...] = ("gmail", "github")
    presets = [HookMapping(HookMappingConfig(id=n), n, n) for n in names if n in hooks.presets]
    return HookSettings(
        path=hooks.path,
        token=(hooks.token or "").strip(),
        max_body_bytes=hooks.max_body_bytes,
        key_rules=_key_rules(hooks),
        allowed_agents=hooks.allowed_agent_ids,
        mappings=(*own, *presets),
        github_secret=(hooks.github.secret or "").strip() if "github" in hooks.presets else "",
        gmail=hooks.gmail,
        transforms=transforms_folder(hooks, paths),
    )


def transforms_folder(hooks: HooksConfig, paths: Paths) -> Path:
    """Return the folder of transforms, which is always below that of the state directory."""
    base = paths.state / "hooks" / "transforms"
    return base / hooks.transforms_dir if hooks.transforms_dir else base


def check_hooks(hooks: HooksConfig, paths: Paths, *gateway_secrets: str) -> None:
    """Raise ConfigError for the first setting that hooks cannot be served with."""
    for refusal in hook_refusals(hooks, paths, *gateway_secrets):
        raise refusal


def hook_refusals(hooks: HooksConfig, paths: Paths, *gateway_secrets: str) -> Iterator[ConfigError]:
    """Yield the settings that a gateway cannot start with."""
    if not hooks.enabled:
        return
    yield from _secret_refusals("hooks.token", hooks.token, gateway_secrets)
    if "github" in hooks.presets:
        others = (*gateway_secrets, hooks.token or "")
        yield from _secret_refusals("hooks.github.secret", hooks.github.secret, others)
    yield from _key_refusals(hooks)
    yield from _folder_refusals(hooks, paths)


def _secret_refusals(key: str, value: str | None, others: tuple[str, ...]) -> Iterator[ConfigError]:
    secret = (value or "").strip()
    if not secret:
        yield ConfigError("it is not set, and webhooks are on", key=key, fix=_FIX)
    elif len(secret) < MIN_SECRET_CHARS:
        message = f"it has fewer than {MIN_SECRET_CHARS} characters, so it can be guessed"
        yield ConfigError(message, key=key, fix=_FIX)
    elif any(same_secret(secret, other.strip()) for other in others if other):
        message = "it is also the secret of something else: who sends hooks would have both"
        yield ConfigError(message, key=key, fix=_FIX)


def _key_rules(hooks: HooksConfig) -> HookKeyRules:
    given = hooks.allowed_session_key_prefixes or ()
    prefixes = tuple(each.strip() for each in given if each.strip())
    default = (hooks.default_session_key or "").strip()
    return HookKeyRules(hooks.allow_request_session_key, prefixes, default)


def _key_refusals(hooks: HooksConfig) -> Iterator[ConfigError]:
    rules, key = _key_rules(hooks), "hooks.allowedSessionKeyPrefixes"
    if hooks.allowed_session_key_prefixes is not None and not rules.prefixes:
        yield ConfigError("it allows no session key", key=key, fix='write ["hook:"]')
    elif rules.prefixes and not has_prefix(rules.default or "hook:", rules.prefixes):
        named = f"hooks.defaultSessionKey {rules.default}" if rules.default else "hook:…"
        message = f"it does not allow {named}, the session of a hook that names none"
        yield ConfigError(message, key=key, fix="add a prefix for it")
    for each in hooks.mappings:
        template = (each.session_key or "").strip()
        if template.startswith("{{") and has_placeholder(template) and not rules.prefixes:
            message = f"the mapping {each.id or each.match.path or '?'} lets a sender choose it"
            fix = "start it with a text of yours, such as hook:, or set " + key
            yield ConfigError(message, key="hooks.mappings[].sessionKey", fix=fix)


def _folder_refusals(hooks: HooksConfig, paths: Paths) -> Iterator[ConfigError]:
    base = (paths.state / "hooks" / "transforms").resolve()
    if not transforms_folder(hooks, paths).resolve().is_relative_to(base):
        yield ConfigError(
            f"it is not a folder in {base}", key="hooks.transformsDir", fix="name one in it"
        )


def hook_warnings(hooks: HooksConfig, paths: Paths) -> Iterator[tuple[str, str]]:
    """Yield what an owner should know of hooks that are on, and what to do about it."""
    if not hooks.enabled:
        return
    rules = _key_rules(hooks)
    if rules.allow_request and not rules.prefixes:
        text = "who has hooks.token chooses any session of an agent: allowRequestSessionKey is on"
        yield text, 'set hooks.allowedSessionKeyPrefixes to ["hook:"]'
    folder = transforms_folder(hooks, paths)
    for each in hooks.mappings:
        path = (each.match.path or "").strip("/")
        if path in OWN_PATHS:
            yield (
                f"{hooks.path}/{path} is built in: a mapping is not used there",
                "name another path",
            )
        if each.transform:
            try:
                find_transform(folder, each.transform.module)
            except HomarusError as exc:
                name = each.id or each.match.path or "without id"
                yield f"the mapping {name} answers no request: {exc.message}", exc.fix
