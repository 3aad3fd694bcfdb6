"""Add the credentials of a source: model profiles, `.env`, logins of channels, approved senders.

A profile, a variable or a login that is here already is never replaced; one with another value is
named in the report, without the value.
"""

import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from homarus.channels.pairing_file import PairingFile, locked
from homarus.config.protected_keys import is_loader_variable
from homarus.config.variables import read_env_file
from homarus.core.atomic_file import write_atomic
from homarus.core.errors import StoreError
from homarus.core.fast_dataclass import dataclass
from homarus.core.faults import fault_point
from homarus.core.message import Json
from homarus.importing.file_copy import CheckTarget, FileDigest, copy_new, digest, has_content
from homarus.importing.report import ImportReport
from homarus.importing.source_tree import RefusedSourceError, SourceTree
from homarus.policy.access import EVERYONE
from homarus.providers.profile_file import FILE, ProfileFile
from homarus.providers.profiles import Raw, migrate_legacy_profiles, parse, put_order
from homarus.store.transcript_codec import load_json

FOLDER: Final = "credentials"
ENV: Final = ".env"
_MAX_JSON_BYTES: Final = 4 << 20
_MAX_LOGIN_BYTES: Final = 8 << 20  # of one file of a login
_ALLOW: Final = re.compile(r"([a-z][a-z0-9]*(?:-[A-Za-z0-9_]+)*)-allowFrom\.json")
_LOCK_WAIT_S: Final = 5.0
# Requests for a code expire after an hour; `oauth.json` is read as profiles.
_IGNORED: Final = re.compile(r"[^/]+-pairing\.json|oauth\.json|.*\.(lock|tmp|bak)")


def read_profiles(tree: SourceTree, agent: str, default_agent: str, report: ImportReport) -> Raw:
    """Return the object of an agent's `auth-profiles.json`, or one made of its legacy files."""
    folder = f"agents/{agent}/agent"
    if tree.exists(f"{folder}/{FILE}"):
        return read_object(tree, f"{folder}/{FILE}", report)
    places = [f"{folder}/auth.json"]
    if agent == default_agent:
        places += ["agent/auth.json", f"{FOLDER}/oauth.json"]
        if tree.exists(f"agent/{FILE}"):
            return read_object(tree, f"agent/{FILE}", report)
    profiles: Raw = {}
    for place in reversed(places):
        profiles |= migrate_legacy_profiles(read_object(tree, place, report))
    return {"profiles": profiles}


def read_object(tree: SourceTree, path: str, report: ImportReport) -> Raw:
    """Return a JSON object of the source; an empty one, reported, if it cannot be read."""
    try:
        found = load_json(tree.read(path, _MAX_JSON_BYTES).decode("utf-8-sig", "replace"))
    except FileNotFoundError:
        return {}
    except RefusedSourceError as exc:
        report.add("credentials", "skipped", path, f"skipped: it {exc}")
        return {}
    except ValueError:
        found = None
    if not isinstance(found, dict):
        report.add("credentials", "skipped", path, "skipped: it is damaged")
        return {}
    return found


@dataclass(slots=True)
class CredentialImporter:
    """Adds credentials to the state directory of the target."""

    state: Path
    report: ImportReport
    is_dry_run: bool
    check_target: CheckTarget

    def add_profiles(self, file: ProfileFile, agent: str, source: Mapping[str, Json]) -> None:
        """Add the profiles of one agent in one write, with the order of new providers."""
        profiles = source.get("profiles")
        theirs: Raw = profiles if isinstance(profiles, dict) else {}
        if not theirs:
            return
        parsed = parse({"profiles": theirs, "order": source.get("order")})
        for id_ in theirs.keys() - parsed.profiles.keys():
            item = f"profile {id_} of agent {agent}"
            self.report.add("credentials", "skipped", item, "skipped: it is no valid profile")
        valid = {id_: theirs[id_] for id_ in parsed.profiles}
        self.check_target(file.path)
        outcome = _ProfileMerge(valid, parsed.order)
        if self.is_dry_run:
            outcome.apply({"profiles": read_raw_profiles(file.path)})
        else:
            file.update(outcome.apply)
            fault_point("import.item")
        for id_ in outcome.added:
            self.report.add("credentials", "imported", id_)
        for _ in outcome.same:
            self.report.add("credentials", "present")
        for id_ in outcome.different:
            item = f"profile {id_} of agent {agent}"
            text = "not imported: the profile of this name is different here"
            self.report.add("credentials", "conflicts", item, text)

    def add_variables(self, tree: SourceTree) -> None:
        """Add the variables of `.env` that are not set there yet."""
        try:
            text = tree.read(ENV, _MAX_JSON_BYTES).decode("utf-8", "replace")
        except FileNotFoundError:
            return
        except RefusedSourceError as exc:
            self.report.add("credentials", "skipped", ENV, f"skipped: it {exc}")
            return
        theirs, bad = read_env_file(text)
        for line in bad:
            self.report.add("credentials", "skipped", f"{ENV}:{line}", "skipped: not NAME=value")
        self.add_values(theirs)

    def add_values(self, theirs: Mapping[str, str]) -> None:
        """Add variables to `.env`, in one write."""
        target = self.state / ENV
        present = _read_env(target)
        ours, _ = read_env_file(present)
        new = {
            name: value
            for name, value in theirs.items()
            if name not in ours and not is_loader_variable(name)
        }
        for name, value in theirs.items():
            if is_loader_variable(name):
                text = "skipped: this variable changes how programs start"
                self.report.add("credentials", "skipped", f"{ENV}: {name}", text)
            elif name in new:
                self.report.add("credentials", "imported")
            elif ours[name] == value:
                self.report.add("credentials", "present")
            else:
                text = "not imported: the variable has another value here"
                self.report.add("credentials", "conflicts", f"{ENV}: {name}", text)
        if new and not self.is_dry_run:
            start = present if not present or present.endswith("\n") else f"{present}\n"
            lines = "".join(f"{name}={_quoted(value)}\n" for name, value in new.items())
            data = f"{start}{lines}".encode("utf-8", "surrogateescape")
            write_atomic(self.check_target(target), data)
            fault_point("import.item")

    def add_logins(self, tree: SourceTree) -> None:
        """Copy the logins of channels: each file, or each folder of one account, as one."""
        groups: dict[str, list[str]] = {}
        for path in tree.walk(FOLDER):
            name = path.removeprefix(f"{FOLDER}/")
            if _IGNORED.fullmatch(name) or _ALLOW.fullmatch(name):
                continue
            groups.setdefault("/".join(name.split("/")[:2]), []).append(name)
        for unit, names in groups.items():
            self._add_login(tree, unit, names)

    def _add_login(self, tree: SourceTree, unit: str, names: Iterable[str]) -> None:
        """Copy what is missing of a login, unless a file of it is different here."""
        item, missing = f"{FOLDER}/{unit}", list[tuple[str, FileDigest]]()
        try:
            for name in names:
                with tree.open(f"{FOLDER}/{name}", _MAX_LOGIN_BYTES) as file:
                    found = digest(file)
                target = self.state / FOLDER / name
                if not os.path.lexists(target):
                    missing.append((name, found))
                elif not has_content(target, found.sha256):
                    text = "not imported: this login is different here"
                    self.report.add("credentials", "conflicts", item, text)
                    return
            for name, found in () if self.is_dry_run else missing:
                with tree.open(f"{FOLDER}/{name}", _MAX_LOGIN_BYTES) as file:
                    copy_new(file, found, self.check_target(self.state / FOLDER / name))
                fault_point("import.item")
        except (RefusedSourceError, FileNotFoundError) as exc:
            reason = str(exc) if isinstance(exc, RefusedSourceError) else "is gone"
            self.report.add("credentials", "skipped", item, f"skipped: a file of it {reason}")
            return
        self.report.add("credentials", "imported" if missing else "present")

    def add_senders(self, tree: SourceTree) -> None:
        """Add the senders that were approved in the source to those of each channel here."""
        for name in tree.names(FOLDER):
            if _ALLOW.fullmatch(name):
                listed = read_object(tree, f"{FOLDER}/{name}", self.report).get("allowFrom")
                self.add_allowed(name, listed if isinstance(listed, list) else [])

    def add_allowed(self, name: str, listed: Iterable[Json]) -> None:
        """Add senders to one file of approved senders; `*` would approve everyone."""
        theirs = list(dict.fromkeys(str(one) for one in listed if isinstance(one, str | int)))
        if EVERYONE in theirs:
            theirs.remove(EVERYONE)
            text = f"skipped: {EVERYONE} would approve every sender"
            self.report.add("approvedSenders", "skipped", f"{FOLDER}/{name}", text)
        file = PairingFile(self.check_target(self.state / FOLDER / name))
        channel = name.partition("-")[0]
        if self.is_dry_run:
            new = _missing(file, theirs)
        else:
            with locked(self.state / FOLDER / f".{channel}-pairing.lock", _LOCK_WAIT_S):
                new = _missing(file, theirs)
                if new:
                    ours = file.read()
                    file.write(
                        {**ours, "version": 1, "allowFrom": [*(ours.get("allowFrom") or ()), *new]}
                    )
            fault_point("import.item")
        for sender in theirs:
            self.report.add("approvedSenders", "imported" if sender in new else "present")

    def count_senders(self) -> int:
        """Return how many senders are approved in the target."""
        found = 0
        folder = self.state / FOLDER
        for path in sorted(folder.glob("*-allowFrom.json")):
            if _ALLOW.fullmatch(path.name):
                found += len(PairingFile(path).read().get("allowFrom") or ())
        return found

    def count_credentials(self, files: Iterable[Path]) -> int:
        """Return how many profiles, variables and logins the target has."""
        profiles = sum(len(read_raw_profiles(file)) for file in files)
        variables = len(read_env_file(_read_env(self.state / ENV))[0])
        tree, logins = SourceTree(self.state), set[str]()
        for path in tree.walk(FOLDER):
            name = path.removeprefix(f"{FOLDER}/")
            if not _IGNORED.fullmatch(name) and not _ALLOW.fullmatch(name):
                logins.add("/".join(name.split("/")[:2]))
        return profiles + variables + len(logins)


@dataclass(slots=True)
class _ProfileMerge:
    """A merge of profiles into a file's object, and what came of each."""

    theirs: Raw
    order: Mapping[str, tuple[str, ...]]
    added: tuple[str, ...] = ()
    same: tuple[str, ...] = ()
    different: tuple[str, ...] = ()

    def apply(self, raw: Raw) -> None:
        ours: Raw = raw["profiles"] if isinstance(raw.get("profiles"), dict) else {}
        providers = {entry.get("provider") for entry in ours.values() if isinstance(entry, dict)}
        self.added = tuple(id_ for id_ in self.theirs if id_ not in ours)
        self.same = tuple(id_ for id_ in self.theirs if ours.get(id_) == self.theirs[id_])
        known = {*self.added, *self.same}
        self.different = tuple(id_ for id_ in self.theirs if id_ not in known)
        raw["profiles"] = {**ours, **{id_: self.theirs[id_] for id_ in self.added}}
        for provider, ids in self.order.items():
            if provider not in providers and set(ids) <= set(self.added):
                put_order(raw, provider, ids)


def read_raw_profiles(file: Path) -> Raw:
    """Return the profiles in a file of the target; none if it cannot be read."""
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    profiles = found.get("profiles") if isinstance(found, dict) else None
    return profiles if isinstance(profiles, dict) else {}


def _missing(file: PairingFile, theirs: Iterable[str]) -> list[str]:
    listed = file.read().get("allowFrom") or []
    if not isinstance(listed, list):
        raise StoreError(f"{file.path}: allowFrom is no list", fix="correct it, and import again")
    ours = {str(one) for one in listed}
    return [sender for sender in theirs if sender not in ours]


def _read_env(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return ""
    except OSError as exc:
        raise StoreError(
            f"{file} cannot be read: {exc.strerror}", fix="check its owner and permissions"
        ) from exc


def _quoted(value: str) -> str:
    """Return a value as a line of `.env` holds it."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    escaped = escaped.replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'
