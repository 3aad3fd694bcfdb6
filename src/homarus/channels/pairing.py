"""Store pairing requests and approved senders.

Three small files per channel, in OpenClaw's format, under `credentials/`:

    <channel>-pairing.json               requests: {version, requests: [{id, code, …}]}
    <channel>-allowFrom.json             approved senders: {version, allowFrom: [ids]}
    <channel>-<account>-allowFrom.json   the same, of an account other than the default one

In a state directory of OpenClaw 2026.9, the senders in its database are approved, too. It is never
written: `revoked` in our file names those of them that are not approved here.

The gateway and the command line write them at the same time: under a lock, each file atomically. An
unreadable file approves no sender, is never overwritten, and is logged.

A code is valid for an hour, and three requests can be pending. Further senders get no code until
one of those is approved, rejected or expired: otherwise many unknown senders could push out the
request that the owner waits for.
"""

import hmac
import logging
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from homarus.channels.pairing_file import PairingFile, locked
from homarus.channels.registry import find_traits
from homarus.config.change_log import log_change
from homarus.config.paths import is_sqlite_home, openclaw_files_dir
from homarus.core.clock import Clock
from homarus.core.errors import StoreError, UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Inbound, Json
from homarus.core.session_keys import DEFAULT_ACCOUNT
from homarus.core.text import one_line
from homarus.policy.access import EVERYONE, normalize_sender_id

if TYPE_CHECKING:
    from homarus.config.openclaw_credentials import OpenClawSenders

log = logging.getLogger(__name__)

ALPHABET: Final = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"  # no characters that look alike
CODE_CHARS: Final = 8
TTL_MS: Final = 60 * 60_000
MAX_PENDING: Final = 3  # of one account
_SEEN_EVERY_MS: Final = 60_000  # an unknown sender who keeps writing must not keep the disk busy
_CHANNEL: Final = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
_MAX_NAME_CHARS: Final = 80


@dataclass(frozen=True, slots=True)
class PairingRequest:
    """A request to be answered."""

    channel: str
    account: str
    id: str
    code: str
    created_ms: int
    seen_ms: int
    meta: Mapping[str, Json]

    @property
    def name(self) -> str:
        return str(self.meta.get("name") or self.meta.get("username") or "")

    @property
    def chat(self) -> str:
        """The chat where the approval can be announced."""
        return str(self.meta.get("chatId") or self.id)


class PairingStore:
    """The files of every channel. `wait_s` is the timeout of the lock."""

    def __init__(self, state: Path, clock: Clock, *, wait_s: float = 5.0) -> None:
        self._state, self._folder = state, openclaw_files_dir(state) / "credentials"
        self._clock, self._wait_s = clock, wait_s
        self._files: dict[str, PairingFile] = {}
        self._logged_problems: set[str] = set()
        self._inherited = _open_inherited(state)

    def channels(self) -> tuple[str, ...]:
        """Return the channels that have requests."""
        end = "-pairing.json"
        found = (path.name.removesuffix(end) for path in self._folder.glob(f"*{end}"))
        return tuple(sorted(filter(_CHANNEL.fullmatch, found)))

    def pending(self, channel: str, account: str | None = None) -> tuple[PairingRequest, ...]:
        """Return the pending requests, oldest first; of all accounts unless one is named."""
        found = (self._read(channel, one) for one in self._records(channel))
        return tuple(one for one in found if one and account in {None, one.account})

    def get_or_create(self, inbound: Inbound) -> PairingRequest | None:
        """Return the sender's request, new if there is none; None while too many are pending."""
        channel, account, sender = (
            inbound.address.channel,
            inbound.address.account,
            inbound.sender,
        )
        existing = self._find(channel, account, sender)
        if existing and self._clock.now_ms() - existing.seen_ms < _SEEN_EVERY_MS:
            return existing
        if not existing and len(self.pending(channel, account)) >= MAX_PENDING:
            return None
        with self._lock(channel):
            requests = [*self.pending(channel)]
            existing = self._find(channel, account, sender)
            if existing is None and sum(one.account == account for one in requests) >= MAX_PENDING:
                return None
            updated = self._make_request(inbound, existing)
            others = [one for one in requests if (one.account, one.id) != (account, updated.id)]
            self._write(channel, [*others, updated])
        return updated

    def approve(self, channel: str, code: str, account: str | None = None) -> PairingRequest:
        """Approve a sender by code. Raises UserError for an unknown code."""
        with self._lock(channel):
            found = self._find_by_code(channel, code, account)
            self._add(channel, found.id, found.account)
            self._drop(found)
        log_change(self._state, "pairing", action="approve", sender=f"{channel}:{found.id}")
        return found

    def add_sender(self, channel: str, sender: str, account: str) -> bool:
        """Approve a sender by id; return whether they were not approved before.

        Raises UserError for what is no id of the service.
        """
        sender_id = normalize_sender_id(channel, sender, find_traits)
        if not sender_id or sender_id == EVERYONE:
            raise UserError(f"{one_line(sender, 40)!r} is no id of a sender on {channel}")
        with self._lock(channel):
            approved = self._normalize_all(channel, self.approved_senders(channel, account))
            if sender_id in approved:
                return False
            self._add(channel, sender_id, account)
        log_change(self._state, "pairing", action="approve", sender=f"{channel}:{sender_id}")
        return True

    def _add(self, channel: str, sender_id: str, account: str) -> None:
        file = self._allow_file(channel, account)
        tree = dict(file.read())
        listed = [entry for entry in _texts(tree.get("allowFrom")) if entry != sender_id]
        if "revoked" in tree:
            tree["revoked"] = [one for one in _texts(tree["revoked"]) if one != sender_id]
        file.write({**tree, "version": 1, "allowFrom": [*listed, sender_id]})

    def reject(self, channel: str, code: str, account: str | None = None) -> PairingRequest:
        """Reject a request; its sender may ask again."""
        with self._lock(channel):
            found = self._find_by_code(channel, code, account)
            self._drop(found)
        return found

    def approved_senders(self, channel: str, account: str) -> tuple[str, ...]:
        """Return the approved senders of an account; none of a file that is unreadable."""
        found = list[str]()
        revoked: set[str] | None = set()
        for file in self._allow_files(channel, account):
            try:
                tree = file.read()
                found += _texts(tree.get("allowFrom"))
                if revoked is not None:
                    revoked |= self._normalize_all(channel, tree.get("revoked"))
                self._logged_problems.discard(file.path.name)
            except StoreError as exc:
                revoked = None  # it may revoke what OpenClaw approves
                self._log_problem(file.path.name, exc)
        if revoked is not None:
            found += [
                sender
                for sender in self.inherited_senders(channel, account)
                if normalize_sender_id(channel, sender, find_traits) not in revoked
            ]
        return tuple(entry for entry in found if entry != EVERYONE)

    def inherited_senders(self, channel: str, account: str) -> tuple[str, ...]:
        """Return the senders that OpenClaw has approved; none if its database is unreadable."""
        if self._inherited is None:
            return ()
        name = self._inherited.path.name
        try:
            found = tuple(self._inherited.approved(channel, account))
        except StoreError as exc:
            self._log_problem(name, exc)
            return ()
        self._logged_problems.discard(name)
        return found

    def revoke(self, channel: str, sender: str, account: str) -> bool:
        """Remove a sender from the approved ones; return whether OpenClaw still approves it.

        Raises UserError for a sender that is not approved.
        """
        sender_id = normalize_sender_id(channel, sender, find_traits)
        with self._lock(channel):
            approved = self.approved_senders(channel, account)
            if not sender_id or sender_id not in self._normalize_all(channel, approved):
                raise UserError(
                    f"{one_line(sender, 40)!r} is not approved on {channel} by pairing",
                    fix="allowFrom in the configuration may name it; homarus config get channels",
                )
            is_inherited = sender_id in self._normalize_all(
                channel, self.inherited_senders(channel, account)
            )
            for number, file in enumerate(self._allow_files(channel, account)):
                tree = dict(file.read())
                listed = _texts(tree.get("allowFrom"))
                kept = [
                    one for one in listed if not self._normalize_all(channel, [one]) & {sender_id}
                ]
                if is_inherited and not number:
                    known = [one for one in _texts(tree.get("revoked")) if one != sender_id]
                    tree["revoked"] = [*known, sender_id]
                elif kept == listed:
                    continue
                file.write({**tree, "version": 1, "allowFrom": kept})
        log_change(self._state, "pairing", action="revoke", sender=f"{channel}:{sender_id}")
        return is_inherited

    # Files

    def _lock(self, channel: str) -> AbstractContextManager[None]:
        _check(channel)
        return locked(self._folder / f".{channel}-pairing.lock", self._wait_s)

    def _file(self, name: str) -> PairingFile:
        return self._files.setdefault(name, PairingFile(self._folder / name))

    def _allow_file(self, channel: str, account: str) -> PairingFile:
        _check(channel)
        if account == DEFAULT_ACCOUNT:
            return self._file(f"{channel}-allowFrom.json")
        return self._file(f"{channel}-{account}-allowFrom.json")

    def _allow_files(self, channel: str, account: str) -> list[PairingFile]:
        files = [self._allow_file(channel, account)]
        if account == DEFAULT_ACCOUNT:
            files.append(self._file(f"{channel}-{DEFAULT_ACCOUNT}-allowFrom.json"))
        return files

    @staticmethod
    def _normalize_all(channel: str, senders: Json) -> set[str]:
        found = _texts(list(senders) if isinstance(senders, tuple) else senders)
        return {normalize_sender_id(channel, sender, find_traits) for sender in found}

    def _records(self, channel: str) -> Iterator[Mapping[str, Json]]:
        _check(channel)
        records = self._file(f"{channel}-pairing.json").read().get("requests")
        yield from (
            (record for record in records if isinstance(record, dict))
            if isinstance(records, list)
            else ()
        )

    def _write(self, channel: str, requests: list[PairingRequest]) -> None:
        file = self._file(f"{channel}-pairing.json")
        records = [_encode_request(one) for one in sorted(requests, key=lambda one: one.created_ms)]
        file.write({**file.read(), "version": 1, "requests": records})

    def _drop(self, request: PairingRequest) -> None:
        remaining = [one for one in self.pending(request.channel) if one.code != request.code]
        self._write(request.channel, remaining)

    def _log_problem(self, name: str, exc: StoreError) -> None:
        if name not in self._logged_problems:
            self._logged_problems.add(name)
            log.error("nobody is let in by %s: %s", name, exc)

    # Requests

    def _read(self, channel: str, record: Mapping[str, Json]) -> PairingRequest | None:
        """Decode a request, None if it is invalid or expired."""
        sender_id, code = record.get("id"), record.get("code")
        created_ms = _ms(record.get("createdAt"))
        if (
            not isinstance(sender_id, str)
            or not isinstance(code, str)
            or not code
            or created_ms is None
        ):
            return None
        if not 0 <= self._clock.now_ms() - created_ms < TTL_MS:
            return None
        meta = record.get("meta")
        saved_meta = meta if isinstance(meta, dict) else {}
        account = saved_meta.get("accountId")
        return PairingRequest(
            channel,
            account if isinstance(account, str) and account else DEFAULT_ACCOUNT,
            sender_id,
            code,
            created_ms,
            _ms(record.get("lastSeenAt")) or created_ms,
            saved_meta,
        )

    def _find(self, channel: str, account: str, sender: str) -> PairingRequest | None:
        sender_id = normalize_sender_id(channel, sender, find_traits)
        return next((one for one in self.pending(channel, account) if one.id == sender_id), None)

    def _make_request(self, inbound: Inbound, existing: PairingRequest | None) -> PairingRequest:
        address, now_ms = inbound.address, self._clock.now_ms()
        details = {
            "name": one_line(inbound.metadata.name, _MAX_NAME_CHARS),
            "username": one_line(inbound.metadata.handle, _MAX_NAME_CHARS),
            "accountId": address.account,
            "chatId": address.chat if address.chat != inbound.sender else "",
        }
        meta: dict[str, Json] = {key: value for key, value in details.items() if value}
        if existing:
            return replace(existing, seen_ms=now_ms, meta={**existing.meta, **meta})
        used_codes = {one.code for one in self.pending(address.channel)}
        code = next(code for code in iter(_make_code, "") if code not in used_codes)
        sender_id = normalize_sender_id(address.channel, inbound.sender, find_traits)
        return PairingRequest(
            address.channel, address.account, sender_id, code, now_ms, now_ms, meta
        )

    def _find_by_code(self, channel: str, code: str, account: str | None) -> PairingRequest:
        entered = re.sub(r"[\s-]", "", code).upper().encode("utf-8", "replace")
        for one in self.pending(channel, account):
            if hmac.compare_digest(one.code.upper().encode("utf-8", "replace"), entered):
                return one
        scope = f" of account {account}" if account else ""
        raise UserError(
            f"nobody on {channel}{scope} waits with the code {one_line(code, 20)!r}: it is wrong,"
            f" used, or older than {TTL_MS // 60_000} minutes",
            fix=f"homarus pairing list {channel} shows who waits; to get a new code, write again",
        )


def _open_inherited(state: Path) -> "OpenClawSenders | None":
    if not is_sqlite_home(state):
        return None
    from homarus.config.openclaw_credentials import OpenClawSenders  # it imports SQLite

    return OpenClawSenders(state)


def _check(channel: str) -> None:
    """Check a channel's name: it becomes part of a file name."""
    if not _CHANNEL.fullmatch(channel) or len(channel) > 40:
        raise UserError(f"{one_line(channel, 40)!r} is not the name of a channel")


def _make_code() -> str:
    return "".join(secrets.choice(ALPHABET) for _ in range(CODE_CHARS))


def _encode_request(request: PairingRequest) -> dict[str, Json]:
    return {
        "id": request.id,
        "code": request.code,
        "createdAt": _iso(request.created_ms),
        "lastSeenAt": _iso(request.seen_ms),
        "meta": dict(request.meta),
    }


def _iso(at_ms: int) -> str:
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03d}Z"


def _ms(text: Json) -> int | None:
    try:
        at = datetime.fromisoformat(text)
        return round(at.timestamp() * 1000) if at.tzinfo else None
    except (TypeError, ValueError, OverflowError):
        return None


def _texts(value: Json) -> list[str]:
    listed = value if isinstance(value, list) else []
    return [str(entry) for entry in listed if isinstance(entry, str | int)]
