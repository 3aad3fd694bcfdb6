"""The one rule for what a client of the gateway may set, over the complete config tree.

A client with the scope `admin` may be on another machine. It must not become the user of this
machine by a setting: by one that decides which program is run, which code is loaded or which files
are read and written; by one that lifts a restriction; by one that sends a stored credential to
another address; or by `${NAME}`, which would show it a variable. Such settings can be changed in
the file, on the machine itself. A client may send all of them back unchanged.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Literal, TypeAlias

from homarus.config.channels import merged_section
from homarus.config.json5_document import KeyPath, Value
from homarus.config.paths import Paths, expand
from homarus.config.redaction import is_secret
from homarus.config.tree_edit import format_path
from homarus.config.variables import references
from homarus.core.errors import UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.session_keys import normalize_account_id

KeyAccess: TypeAlias = Literal["free", "machine", "guard", "workspace", "endpoint"]
"""`machine` may be removed, not set; `guard` neither, because it may restrict; `workspace` may be a
folder for workspaces; `endpoint` may be set together with the credential that is sent to it."""

_MACHINE = re.compile(
    r"\$include|(?!max).*[a-z](?:Dir|Path|Root|File|Module|Binary|Executable)s?"
    r"|(?i:dirs?|paths?|roots?|files?|args|bin|binary|cliBackends|command|executable|filepath"
    r"|installs|module|modulepath|pathPrepend|remoteHost|safeBins|script|setupCommand|spec"
    r"|sshIdentity|sshTarget|store|workdir|apiKeyFrom)"
)
_URL_PATHS = re.compile(r"(?:webhook|base|callback)Path|apiRoot")  # of HTTP requests, not of files
_GUARD = re.compile(
    r"sandbox|elevated|elevatedDefault|execApprovals|configWrites|noSandbox|bind|webhookHost|webhookPort|allowUrl"
    r"|urlAllowlist|promptFileWriters|dangerously.*|allowInsecure.*|allowUnsafe.*"
)
_ENDPOINT = re.compile(
    r"(?:.*(?:url|uri|endpoint|hosts?|proxy|fingerprint)|api_?root|home_?server|servers?|domain"
    r"|address)",
    re.IGNORECASE,
)
# Sections by their path; the first that matches decides. `*` is any key or list entry.
_SECTIONS: tuple[tuple[str, KeyAccess], ...] = (
    *((f"plugins.{name}", "guard") for name in ("enabled", "allow", "deny", "load", "slots")),
    ("plugins.entries.*.enabled", "guard"),
    ("hooks.internal", "guard"),
    ("hooks.gmail.tailscale", "guard"),
    *(
        (f"hooks.{name}", "guard")
        for name in (
            "enabled",
            "token",
            "github",
            "allowRequestSessionKey",
            "allowedSessionKeyPrefixes",
            "allowedAgentIds",
        )
    ),
    ("hooks.path", "free"),
    ("hooks.gmail.serve.path", "free"),
    ("hooks.mappings.*.match", "free"),
    ("channels.*.webhook.path", "free"),
    ("channels.*.activityUrl", "free"),
    ("channels.*.accounts.*.activityUrl", "free"),
    ("channels.*.customCommands", "free"),  # entries of a chat's menu; nothing is run
    ("channels.*.accounts.*.customCommands", "free"),
    ("channels.*.nickserv.service", "endpoint"),  # the nick that is sent the password
    ("channels.*.accounts.*.nickserv.service", "endpoint"),
    ("channels.*.tls", "endpoint"),  # without it, the password is readable on the way
    ("channels.*.accounts.*.tls", "endpoint"),
    ("channels.*.encryptionTrust", "guard"),  # which devices are believed
    ("channels.*.accounts.*.encryptionTrust", "guard"),
    ("gateway.http.endpoints.responses.files.allowUrl", "guard"),
    ("gateway.http.endpoints.responses.files.urlAllowlist", "guard"),
    ("gateway.http.endpoints.responses.files", "free"),
    *(
        (f"gateway.http.endpoints.{name}", "guard")
        for name in ("mcp", "chatCompletions", "responses.enabled", "embeddings", "toolsInvoke")
    ),
    *(
        (f"gateway.http.endpoints.responses.images.{name}", "guard")
        for name in ("allowUrl", "urlAllowlist")
    ),
    ("gateway.auth", "guard"),
    ("gateway.tls", "guard"),
    ("gateway.remote.tlsFingerprint", "guard"),  # whom our own commands trust
    ("gateway.tailscale", "guard"),
    ("gateway.customBindHost", "guard"),
    ("gateway.trustedProxies", "guard"),
    ("gateway.nodes", "guard"),
    ("gateway.tools", "guard"),
    ("gateway.controlUi.allowedOrigins", "guard"),
    ("approvals", "guard"),
    ("cron.webhook", "endpoint"),
    ("skills.registry", "guard"),  # where code for the agent comes from
    ("update", "guard"),
    ("env.shellEnv", "guard"),
    ("auth.clients", "machine"),
    ("models.bedrockDiscovery", "machine"),
    ("logging.redactSensitive", "guard"),
    ("logging.redactPatterns", "guard"),
    ("commands.bash", "guard"),
    ("commands.config", "guard"),
    ("commands.debug", "guard"),
    ("tools.fs", "guard"),
    ("tools.sessions", "guard"),
    ("tools.web.fetch.ssrfPolicy", "guard"),
    # The stored credential of the provider is sent there, whatever else is set next to it.
    *(
        (f"tools.media.{kind}baseUrl", "machine")
        for kind in ("models.*.", "image.", "image.models.*.", "audio.", "audio.models.*.")
    ),
    ("browser.ssrfPolicy", "guard"),
    ("browser.enabled", "guard"),
    ("browser.evaluateEnabled", "guard"),
    ("browser.attachOnly", "guard"),
    ("agents.list.*.tools.fs", "guard"),
    ("agents.list.*.mcp", "guard"),
    *((f"mcp.servers.*.{name}", "guard") for name in ("enabled", "toolFilter", "effects")),
    ("mcp.servers", "machine"),  # each is a program, or an address that is sent credentials
    *(
        (f"{tools}.exec.{name}", "guard")
        for tools in ("tools", "agents.list.*.tools")
        for name in ("host", "security", "ask", "node", "applyPatch")
    ),
)
# Variables that decide which code a program loads, or where it finds other programs.
_LOADERS = re.compile(
    r"(?i)(?:PATH|HOME|SHELL|ENV|BASH_ENV|IFS|(?:LD|DYLD|PYTHON|NODE|GIT|PERL|RUBY|JAVA|XDG)_?.*"
    r"|.*_OPTIONS|OPENCLAW_.*)\Z"
)
_CREDENTIALS = re.compile(r"(?i)[A-Z0-9_]+_(?:KEY|TOKEN|SECRET|PASSWORD)\Z")
_ACCOUNT_STEPS = 3  # channels, the channel, accounts
_FIX = "change it in the file, on the machine itself: homarus config set"


def is_loader_variable(name: str) -> bool:
    """Return whether a variable changes what a program loads or where ours has its files."""
    is_ours = name.upper().startswith("OPENCLAW_")
    return is_ours or bool(_LOADERS.match(name) and not _CREDENTIALS.match(name))


@dataclass(frozen=True, slots=True)
class ClientRules:
    """What the rule depends on besides the two trees."""

    paths: Paths
    # The values in use, defaults included: a client that saves all it was shown sends them.
    in_use: Value = None
    # Returns whether a model provider has a credential outside the config.
    has_stored_key: Callable[[str], bool] = lambda _provider: True
    # Returns whether a channel has one: a saved login, or a variable of the environment.
    has_stored_login: Callable[[str], bool] = lambda _channel: True


@dataclass(frozen=True, slots=True)
class _Setting:
    """A setting that the rule is about; its path has the ids of list entries."""

    path: KeyPath
    access: KeyAccess
    value: Value

    @property
    def identity(self) -> tuple[KeyPath, str]:
        return self.path, json.dumps(self.value, sort_keys=True)


def classify_key(path: Sequence[str]) -> KeyAccess:
    """Return what a client may do with a key; a path has one step for each key and list entry."""
    if path[0] == "agent":  # the legacy name of `agents.defaults`
        path = ("agents", "defaults", *path[1:])
    access: KeyAccess = "free"
    for length in range(1, len(path) + 1):
        access = _classify_step(path[:length])
        if access in {"machine", "guard"}:
            break
    return access


def _classify_step(path: Sequence[str]) -> KeyAccess:
    key = path[-1]
    for steps, access in _sections_by_root().get(path[0], ()):
        if _is_section(path, steps):
            return access
    if "env" in path[:-1] and key != "vars":
        return "free" if _CREDENTIALS.match(key) and not _LOADERS.match(key) else "machine"
    if key == "workspace":
        return "workspace"
    if _GUARD.fullmatch(key):
        return "guard"
    if _MACHINE.fullmatch(key) and not _URL_PATHS.fullmatch(key):
        return "machine"
    return "endpoint" if _ENDPOINT.fullmatch(key) else "free"


def check_protected_keys(old: Value, new: Value, rules: ClientRules) -> None:
    """Raise UserError if a change does what a client may not do; see the module's docstring."""
    before = {setting.identity: setting for setting in _settings(old)}
    after = {setting.identity: setting for setting in _settings(new)}
    known = before.keys() | {setting.identity for setting in _settings(rules.in_use)}
    for identity, setting in after.items():
        if identity not in known:
            _check_set(setting, old, new, rules)
    for setting in before.values():
        if setting.access == "guard" and _find(new, setting.path) is None:
            _check_removed(setting, new)


def check_client_workspace(text: str, paths: Paths) -> None:
    """Raise UserError for a workspace that a client may not choose.

    Only a folder of the state directory whose name starts with `workspace` is for agents alone:
    any other may hold what another program reads or runs.
    """
    state = paths.state.resolve()
    is_absolute = text.startswith(("/", "~/")) and "\0" not in text
    real = expand(text, paths.home).resolve() if is_absolute else paths.home
    inside = real.relative_to(state).parts[:1] if real.is_relative_to(state) else ()
    if not inside or not inside[0].startswith("workspace"):
        raise UserError(
            "a client of the gateway can only choose a workspace in the folder "
            f"{paths.state}, with a name that starts with workspace",
            fix="homarus agents add --workspace on the machine itself, or homarus config set",
        )


def _is_section(path: Sequence[str], steps: Sequence[str]) -> bool:
    return len(path) >= len(steps) and all(
        step in ("*", found) for step, found in zip(steps, path, strict=False)
    )


@lru_cache(1)
def _sections_by_root() -> dict[str, list[tuple[list[str], KeyAccess]]]:
    """Return the sections by their first step: most keys are in none."""
    found: dict[str, list[tuple[list[str], KeyAccess]]] = {}
    for pattern, access in _SECTIONS:
        steps = pattern.split(".")
        found.setdefault(steps[0], []).append((steps, access))
    return found


def _settings(tree: Value, path: KeyPath = (), names: tuple[str, ...] = ()) -> Iterator[_Setting]:
    """Yield every setting that is not free, and every text with a reference to a variable."""
    access = classify_key(names) if names else "free"
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from _settings(value, (*path, key), (*names, key))
    elif access != "free":
        yield _Setting(path, access, tree)
    elif isinstance(tree, list):
        for item in tree:
            has_id = isinstance(item, dict) and isinstance(item.get("id"), str)
            step = f"[{item['id']}]" if has_id else "[]"
            found = list(_settings(item, (*path, step), (*names, step)))
            yield from found if has_id else _combine(found)
    elif isinstance(tree, str) and references(tree):
        yield _Setting(path, access, tree)


def _combine(found: list[_Setting]) -> Iterator[_Setting]:
    """Yield the settings of a list entry, with those of class `machine` as one.

    A program of one entry must not be combined with the arguments of another.
    """
    yield from (setting for setting in found if setting.access != "machine")
    programs = [setting for setting in found if setting.access == "machine"]
    if programs:
        values = {_format(setting.path): setting.value for setting in programs}
        yield _Setting(programs[0].path, "machine", values)


def _check_set(setting: _Setting, old: Value, new: Value, rules: ClientRules) -> None:
    path, value = setting.path, setting.value
    shown = _format(path)
    if names := list(_references(value)):
        raise UserError(
            f"{shown}: a client cannot make it ${{{names[0]}}}, a variable of this machine",
            fix=_FIX,
        )
    if setting.access == "workspace":
        check_client_workspace(str(value), rules.paths)
    elif setting.access == "endpoint":
        if not _brings_credential(path, old, new, rules):
            raise UserError(
                f"{shown} cannot be changed through the gateway while a stored credential is used",
                fix=f"set it together with the credential that is sent there, as text; or {_FIX}",
            )
    elif setting.access != "free":
        raise UserError(
            f"{shown} cannot be set through the gateway: "
            "it decides what is run, read or allowed on this machine",
            fix=_FIX,
        )


def _check_removed(setting: _Setting, new: Value) -> None:
    """Raise UserError for a restriction that is removed, unless its agent or account is too."""
    path = setting.path
    entries = [
        index + 1
        for index, step in enumerate(path)
        if str(step).startswith("[") or (index and path[index - 1] in {"channels", "accounts"})
    ]
    if entries and any(_find(new, path[:length]) is None for length in entries):
        return
    raise UserError(
        f"{_format(path)} cannot be removed through the gateway: it may restrict", fix=_FIX
    )


def _brings_credential(path: KeyPath, old: Value, new: Value, rules: ClientRules) -> bool:
    """Return whether no stored credential is sent to a new address."""
    if path[0] == "channels":
        return _brings_login(path, old, new, rules)
    is_provider = path[:2] == ("models", "providers")
    length = {"models": 3}.get(str(path[0]), len(path) - 1)
    scope = path[:length]
    stored = set(_credentials(_find(old, scope), scope))
    given = set(_credentials(_find(new, scope), scope))
    if stored & given:
        return False
    if is_provider:
        return not rules.has_stored_key(str(path[2]))
    return bool(given)


def _brings_login(path: KeyPath, old: Value, new: Value, rules: ClientRules) -> bool:
    """Return whether no stored credential of a channel is sent to a new address.

    An account is sent its own credentials and those of the section of its channel; a setting of
    that section concerns all accounts. An address without any credential, such as that of a public
    IRC server, is accepted if no login is stored outside the config either.
    """
    scope, channel = path[:2], str(path[1])
    stored = set(_credentials(_login_section(old, path), scope))
    given = set(_credentials(_login_section(new, path), scope))
    if stored & given:
        return False
    return bool(given) or not rules.has_stored_login(channel)


def _login_section(tree: Value, path: KeyPath) -> Value:
    """Return the settings whose credentials are sent to the address at a path of `channels`."""
    if len(path) <= _ACCOUNT_STEPS or path[2] != "accounts":
        return _find(tree, path[:2])
    channels = _find(tree, path[:1])
    account = normalize_account_id(str(path[3]))
    return merged_section(channels if isinstance(channels, dict) else {}, str(path[1]), account)


def _credentials(tree: Value, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    """Yield the secrets of a section, and what names one: a file, a command, a variable."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from _credentials(value, (*path, key))
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            yield from _credentials(value, (*path, index))
    elif isinstance(tree, str):
        names = tuple(str(step) for step in path)
        is_named = any(classify_key(names[: at + 1]) == "machine" for at in range(len(names)))
        if is_named or references(tree) or is_secret(path, tree):
            yield path, tree


def _references(value: Value) -> Iterator[str]:
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _references(inner)
    elif isinstance(value, str):
        yield from references(value)


def _find(tree: Value, path: KeyPath) -> Value:
    """Return the value at a path of _settings, None if there is none."""
    for step in path:
        if isinstance(tree, list):
            ids = (item for item in tree if isinstance(item, dict))
            tree = next((item for item in ids if f"[{item.get('id')}]" == step), None)
        else:
            tree = tree.get(step) if isinstance(tree, dict) else None
    return tree


def _format(path: KeyPath) -> str:
    return format_path([step for step in path if not str(step).startswith("[")])
