"""`auth-profiles.json` as values: credentials, their order and usage; OpenClaw's format.

`parse` accepts any content, drops what is invalid and reports it. The `put_…` functions change a
file's object in place and keep unknown fields.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TypeAlias

from homarus.config.model_refs import normalize_provider_id
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.core.text import one_line
from homarus.providers.rotation import CredentialKind, CredentialUsage, Slot

VERSION = 1
MAX_ID_CHARS = 200
MAX_TIME_MS = 8_640_000_000_000_000  # the largest JavaScript date

Raw: TypeAlias = dict[str, Json]
# Each kind's field for its secret, and for a reference to one.
SECRET_FIELDS: Mapping[CredentialKind, tuple[str, str]] = {
    "api_key": ("key", "keyFrom"),
    "token": ("token", "tokenFrom"),
    "oauth": ("access", ""),
}


@dataclass(frozen=True, slots=True)
class Profile:
    """One credential. `secret` is the key or token itself, or `${NAME}`."""

    id: str
    provider: str
    kind: CredentialKind
    secret: str = field(default="", repr=False)
    kept: Mapping[str, Json] | None = None
    refresh: str = field(default="", repr=False)
    expires_ms: int = 0
    email: str = ""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    token_url: str = ""


@dataclass(frozen=True, slots=True)
class Profiles:
    """The content of one file, and its problems."""

    profiles: Mapping[str, Profile] = field(default_factory=dict)
    order: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    last_good: Mapping[str, str] = field(default_factory=dict)
    usage: Mapping[Slot, CredentialUsage] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def parse(raw: Mapping[str, Json]) -> Profiles:
    """Parse a file's object; invalid parts are dropped and reported."""
    profiles: dict[str, Profile] = {}
    warnings: list[str] = []
    for id_, entry in _object(raw.get("profiles")).items():
        profile, wrong = _profile(id_, entry)
        if profile:
            profiles[id_] = profile
        else:
            warnings.append(f"profile {one_line(id_)!r} is not used: {wrong}")
    if not isinstance(raw.get("profiles", {}), dict):
        warnings.append("profiles is not an object")
    if raw.get("version", VERSION) != VERSION:
        warnings.append(f"its version is not {VERSION}; it is read as far as it is understood")
    order = {
        normalize_provider_id(provider): tuple(id_ for id_ in ids if isinstance(id_, str))
        for provider, ids in _object(raw.get("order")).items()
        if isinstance(ids, list)
    }
    last_good = {
        normalize_provider_id(provider): id_
        for provider, id_ in _object(raw.get("lastGood")).items()
        if isinstance(id_, str)
    }
    usage: dict[Slot, CredentialUsage] = {}
    for id_, stats in _object(raw.get("usageStats")).items():
        usage[id_, ""] = _usage(stats)
        for model, of_model in _object(_object(stats).get("models")).items():
            usage[id_, model] = _usage(of_model)
    return Profiles(profiles, order, last_good, usage, tuple(warnings))


def _profile(id_: str, entry: Json) -> tuple[Profile | None, str]:
    if not isinstance(entry, dict):
        return None, "it is not an object"
    if not id_ or len(id_) > MAX_ID_CHARS:
        return None, "that is no name for one"
    kind = next((kind for kind in SECRET_FIELDS if kind == entry.get("type")), None)
    if kind is None:
        return None, "its type is not api_key, token or oauth"
    provider = normalize_provider_id(_text(entry.get("provider")))
    if not provider:
        return None, "it names no provider"
    where, elsewhere = SECRET_FIELDS[kind]
    kept = entry.get(elsewhere) or entry.get(f"{where}Ref")  # OpenClaw 2026.9's word
    profile = Profile(
        id=id_,
        provider=provider,
        kind=kind,
        secret=_text(entry.get(where)).strip(),
        kept=kept if isinstance(kept, dict) else None,
        refresh=_text(entry.get("refresh")).strip(),
        expires_ms=_time_ms(entry.get("expires")),
        email=_text(entry.get("email")),
        client_id=_text(entry.get("clientId")),
        client_secret=_text(entry.get("clientSecret")),
        token_url=_text(entry.get("tokenUrl")),
    )
    return profile, ""


def _usage(stats: Json) -> CredentialUsage:
    stats = _object(stats)
    counts = _object(stats.get("failureCounts"))
    return CredentialUsage(
        last_used_ms=_time_ms(stats.get("lastUsed")),
        cooldown_until_ms=_time_ms(stats.get("cooldownUntil")),
        disabled_until_ms=_time_ms(stats.get("disabledUntil")),
        disabled_reason=_text(stats.get("disabledReason")),
        error_count=_count(stats.get("errorCount")),
        failure_counts={name: n for name, value in counts.items() if (n := _count(value))},
        last_failure_ms=_time_ms(stats.get("lastFailureAt")),
    )


def migrate_legacy_profiles(tree: Mapping[str, Json]) -> Raw:
    """Return the profiles of a legacy file: one per provider, not always with its type."""
    found: Raw = {}
    for provider, entry in tree.items():
        if not isinstance(entry, dict) or not provider:
            continue
        told = entry.get("type") or entry.get("mode")
        kind = told or (
            "oauth" if "access" in entry else "token" if "token" in entry else "api_key"
        )
        name = normalize_provider_id(_text(entry.get("provider")) or provider)
        found[f"{name}:default"] = {**entry, "type": kind, "provider": name}
    return found


def put_profile(raw: Raw, id_: str, fields: Mapping[str, Json]) -> None:
    """Set a profile's fields; None removes one; other fields stay while the type does."""
    profiles = _inner(raw, "profiles")
    old = _object(profiles.get(id_))
    kept = old if old.get("type") == fields.get("type", old.get("type")) else {}
    profiles[id_] = {name: value for name, value in {**kept, **fields}.items() if value is not None}


def put_usage(raw: Raw, slot: Slot, usage: CredentialUsage) -> None:
    """Write a credential's usage; a removed profile gets none."""
    id_, model = slot
    if id_ not in _object(raw.get("profiles")):
        return
    stats = _inner(_inner(raw, "usageStats"), id_)
    if model:
        stats = _inner(_inner(stats, "models"), model)
    said = {
        "lastUsed": usage.last_used_ms,
        "cooldownUntil": usage.cooldown_until_ms,
        "disabledUntil": usage.disabled_until_ms,
        "disabledReason": usage.disabled_reason,
        "errorCount": usage.error_count,
        "failureCounts": dict(usage.failure_counts),
        "lastFailureAt": usage.last_failure_ms,
    }
    for name, value in said.items():
        if value or name == "errorCount":
            stats[name] = value
        else:
            stats.pop(name, None)
    if model and usage == CredentialUsage():
        del _inner(_inner(raw, "usageStats"), id_)["models"][model]


def forget_usage(raw: Raw, id_: str) -> None:
    """Reset the usage of a profile with a new secret."""
    if id_ in _object(raw.get("usageStats")):
        del raw["usageStats"][id_]


def remove_profile(raw: Raw, id_: str) -> None:
    """Remove a profile, and every reference to it: its usage, and its place in orders.

    An order that would be empty is removed: an empty one excludes all credentials.
    """
    _object(raw.get("profiles")).pop(id_, None)
    forget_usage(raw, id_)
    last_good = _object(raw.get("lastGood"))
    for provider in [name for name, value in last_good.items() if value == id_]:
        del last_good[provider]
    if isinstance(raw.get("order"), dict):
        raw["order"] = order_without(raw["order"], id_)
        if not raw["order"]:
            del raw["order"]


def order_without(order: Raw, id_: str) -> Raw:
    """Return orders of credentials without one of them, and without those that become empty."""
    changed = {
        provider: [each for each in ids if each != id_] if isinstance(ids, list) else ids
        for provider, ids in order.items()
    }
    return {name: ids for name, ids in changed.items() if ids or not order[name]}


def put_last_good(raw: Raw, provider: str, id_: str) -> None:
    """Record which credential of a provider worked last."""
    if id_ in _object(raw.get("profiles")):
        _inner(raw, "lastGood")[provider] = id_


def put_order(raw: Raw, provider: str, ids: Sequence[str] | None) -> None:
    """Set the order of a provider's credentials; None removes it."""
    order = _inner(raw, "order")
    for name in [name for name in order if normalize_provider_id(name) == provider]:
        del order[name]
    if ids is not None:
        order[provider] = list(ids)
    elif not order:
        del raw["order"]


def _inner(raw: Raw, name: str) -> Raw:
    """Return the object under a name; create it when it is missing."""
    if not isinstance(raw.get(name), dict):
        raw[name] = {}
    inner: Raw = raw[name]
    return inner


def _object(value: Json) -> Raw:
    return value if isinstance(value, dict) else {}


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def _number(value: Json, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return 0
    return min(int(value), most) if value > 0 else 0


def _time_ms(value: Json) -> int:
    return _number(value, MAX_TIME_MS)


def _count(value: Json) -> int:
    return _number(value, 1_000_000)
