"""A session: the record and transcript of one conversation, loaded once and then updated.

    sessions = SessionRepository(store, clock)
    session = await sessions.load("agent:main:main", "main", cwd=workspace)
    await session.start_turn(question, provider="openai", model="gpt-5")   # one transaction
    await session.append(answer)                                            # one transaction

Every change of a session is one transaction: the entries and the record with its new figures. A
turn in a long session costs as much as in a short one, because a loaded session is reused until
its version or its leaf shows that another process wrote.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias
from uuid import uuid4
from weakref import WeakValueDictionary

from homarus.config.change_log import change_author
from homarus.core.clock import Clock
from homarus.core.errors import ConflictError, UserError
from homarus.core.fast_dataclass import replace
from homarus.core.message import Inbound, Json, Message, ToolResult, Usage
from homarus.sessions import transcript
from homarus.sessions.chat_fields import chat_fields
from homarus.sessions.client_turn import without_results
from homarus.sessions.last_route import route_fields
from homarus.sessions.rejection import is_answer
from homarus.sessions.transcript import (
    EntryTree,
    NewEntry,
    OrphanedMessage,
    SuspendedTurn,
    TranscriptModelState,
)
from homarus.store.audit import AuditEntry
from homarus.store.base import (
    SKILLS_FIELD,
    SessionRecord,
    SessionRevision,
    Store,
    Transaction,
    TranscriptEntry,
    TranscriptHeader,
)

# Writes that are added to the transaction that saves these entries.
ExtraWrites: TypeAlias = Callable[[Transaction, Sequence[TranscriptEntry]], None]

MAX_LABEL_CHARS: Final = 64
# The models that may answer in place of the session's own, which a setting chose.
FALLBACKS_FIELD: Final = "modelFallbacks"
_DEFAULT_CACHED = 32  # sessions
_MAX_ATTEMPTS = 3
# Fields that are removed when a session gets a new transcript.
_TRANSCRIPT_FIELDS: Final = frozenset(
    {
        "sessionFile", "systemSent", "abortedLastRun", "inputTokens", "outputTokens",
        "totalTokens", "totalTokensFresh", "cacheRead", "cacheWrite", "compactionCount",
        "memoryFlushAt",
        "memoryFlushCompactionCount", "sessionMemoryFile", "skillsRead", SKILLS_FIELD,
        "systemPromptReport",
    }
)  # fmt: skip


def parse_session_label(raw: object) -> str:
    """Return a session's label, stripped; raises UserError when it is empty or too long."""
    if not isinstance(raw, str):
        raise UserError("invalid label: must be a string")
    label = raw.strip()
    if not label:
        raise UserError("invalid label: empty")
    if len(label) > MAX_LABEL_CHARS:
        raise UserError(f"invalid label: too long (max {MAX_LABEL_CHARS})")
    return label


def choice_fields(provider: str | None, model: str | None) -> dict[str, Json]:
    """Return the fields of the entry for a chosen model; without one it is the agent's.

    Which model answered last is removed: the choice is shown until the next one answers.
    """
    chosen: dict[str, Json] = {"providerOverride": provider, "modelOverride": model}
    return chosen | {"modelProvider": None, "model": None}


class Session:
    """One conversation. Made by `Session.load`, or by `SessionRepository.load`, which caches it.

    `messages` is the context as a model gets it; `start_turn` and `append` add to it.
    """

    def __init__(self, store: Store, clock: Clock, record: SessionRecord, cwd: str = "") -> None:
        self._store, self._clock, self._cwd = store, clock, cwd
        self._start(record)

    def _start(
        self,
        record: SessionRecord,
        entries: Sequence[TranscriptEntry] = (),
        leaf: str | None = None,
    ) -> None:
        path = EntryTree(entries, leaf).path()
        self.record = record
        self.leaf = leaf
        self._waiting_calls = transcript.waiting_calls_in(path)
        self.messages = transcript.pair_calls(transcript.messages_of(path), self._waiting_calls)
        self._ids = {entry.id for entry in entries}
        self._settings: TranscriptModelState = transcript.model_state_of(path)
        self._orphan: OrphanedMessage | None = transcript.orphan_of(path)
        self._usage = Usage()  # of the run since `start_turn`
        self._stale = False  # another process wrote between two of our writes

    @classmethod
    async def load(
        cls, store: Store, clock: Clock, key: str, agent: str, *, cwd: str = ""
    ) -> "Session":
        """Load the session of a key; a new one is not stored until it is used."""
        record = await store.session(key) or _new_record(key, agent, clock.now_ms())
        session = cls(store, clock, record, cwd)
        await session.read()
        return session

    async def read(self) -> None:
        """Read the transcript of the loaded record."""
        record = self.record
        if not record.session_id:  # a damaged entry of an imported sessions.json
            record = replace(record, session_id=str(uuid4()))
        entries = await self._store.entries(record.session_id) if record.version else ()
        leaf = await self._store.leaf(record.session_id) if record.version else None
        self._start(record, entries, leaf)

    @property
    def key(self) -> str:
        return self.record.key

    @property
    def session_id(self) -> str:
        return self.record.session_id

    @property
    def model(self) -> str | None:
        """The model chosen for this session: `provider/model`."""
        provider, model = self._field("providerOverride"), self._field("modelOverride")
        return f"{provider}/{model}" if provider and model else model

    @property
    def model_fallbacks(self) -> tuple[str, ...]:
        """The models that may answer in place of that one; none for one that a person chose."""
        listed = self.record.data.get(FALLBACKS_FIELD)
        return tuple(map(str, listed)) if isinstance(listed, list) else ()

    @property
    def thinking(self) -> str | None:
        """The thinking level chosen for this session."""
        return self._field("thinkingLevel")

    @property
    def profile(self) -> str:
        """The id of the credential pinned to this session, or ""."""
        return self._field("authProfileOverride") or ""

    @property
    def profile_locked(self) -> bool:
        """Whether a person pinned that credential: then no other is tried."""
        return self._field("authProfileOverrideSource") == "user"

    @property
    def label(self) -> str | None:
        return self._field("label")

    @property
    def context_tokens(self) -> int:
        """The size of the last prompt; 0 when it is not known."""
        total = self.record.data.get("totalTokens")
        fresh = self.record.data.get("totalTokensFresh") is not False
        return total if isinstance(total, int) and fresh else 0

    @property
    def is_used(self) -> bool:
        """Whether it has messages; injected ones do not count."""
        return self.last_ms is not None

    @property
    def has_context(self) -> bool:
        """Whether the next request has earlier messages: those that were rejected do not count."""
        return any(is_answer(m) or transcript.is_summary(m) for m in self.messages)

    @property
    def last_ms(self) -> int | None:
        """The time of the last message, or None; injected ones do not count."""
        times = (m.at_ms for m in reversed(self.messages) if not transcript.is_injected(m))
        return next(times, None)

    async def start_turn(
        self, question: Message | None, *, provider: str, model: str, thinking: str = "off",
        api: str = "", window: int | None = None, inbound: Inbound | None = None,
        extra_writes: ExtraWrites | None = None, extra_fields: Mapping[str, Json] | None = None,
        is_use: bool = True, earlier: Sequence[Message] = (),
    ) -> None:  # fmt: skip
        """Save the user message of a run, and the model and thinking level if they changed.

        `earlier` are messages that come before it: results of calls for a client, or the
        conversation so far of a session that is new. They may be all there is.

        `inbound` is the message that is answered: its chat becomes the last route and describes
        the session. `extra_fields` are more fields of the record. An earlier user message without
        an answer is left on a branch of its own, so that two never follow each other. A turn that
        is no use of the session changes no other field of the record.
        """
        self._usage = Usage()
        messages, parent = self.messages, self.leaf
        if self._orphan:
            messages, parent = messages[:-1], self._orphan.parent
        drafts = self._changes(provider, model, thinking, api)
        fields: dict[str, Json] = {}
        if is_use:
            fields = {"abortedLastRun": False, **({"contextTokens": window} if window else {})}
        if inbound and is_use:
            entry, key = self.record.data, self.key
            fields |= route_fields(entry, inbound.address, key=key)
            fields |= chat_fields({**entry, **fields}, inbound, key)
        fields |= extra_fields or {}
        await self._save(
            (*drafts, *earlier, *([question] if question else [])),
            fields,
            parent,
            before=self._messages_before(messages, earlier),
            extra_writes=extra_writes,
            is_use=is_use,
        )

    def _messages_before(
        self, messages: list[Message], earlier: Sequence[Message]
    ) -> list[Message]:
        """Return the messages before a turn; calls have results, or get them in the turn."""
        parts = (part for message in earlier for part in message.parts)
        if given := {part.call_id for part in parts if isinstance(part, ToolResult)}:
            return without_results(messages, given)
        return _with_results(messages, self._waiting_calls)

    async def resume_turn(
        self, question_ids: Sequence[str], extra_writes: ExtraWrites
    ) -> list[Message] | None:
        """Resume an interrupted run, given the entry ids of its user messages.

        Returns the messages after them; None when the first is not on the current path any more,
        or another user message or a resumed run follows. A partial answer is left on a branch of
        its own. Calls without a result stay without one: the run knows which were started.
        """
        path = await self.path()
        first = next((n for n, one in enumerate(path) if one.id == question_ids[0]), None)
        if first is None or transcript.questions_in(path[first:]) - set(question_ids):
            return None
        if transcript.has_resumption(path[first:]):
            return None
        max_cached = path[: len(path) - transcript.count_partial_answers(path[first + 1 :])]
        leaf = max_cached[-1].id
        async with self._store.transaction() as transaction:
            if leaf != self.leaf:
                transaction.set_leaf(self.session_id, leaf)
            extra_writes(transaction, ())
        self.leaf, self._orphan = leaf, None
        found = transcript.messages_of(max_cached)
        last = next((n for n in range(len(found) - 1, -1, -1) if found[n].calls), len(found))
        paired = transcript.pair_calls(found[:last], self._waiting_calls)
        self.messages = paired + found[last:]
        return transcript.messages_of(max_cached[first + 1 :])

    async def resume_suspended_turn(
        self, question_ids: Sequence[str], run_ids: Sequence[str], extra_writes: ExtraWrites
    ) -> SuspendedTurn | None:
        """Resume a run that was suspended, after which the conversation went on with other turns.

        Returns None when there is no such run on the current path.
        """
        path = await self.path()
        turn = transcript.suspended_turn(path, question_ids, run_ids)
        if turn is None:
            return None
        async with self._store.transaction() as transaction:
            extra_writes(transaction, ())
        self._orphan = None
        self.pair_messages(path)
        return turn

    def pair_messages(self, path: Sequence[TranscriptEntry]) -> None:
        """Load the messages of a path, each call with its result."""
        messages = transcript.messages_of(path)
        self.messages[:] = transcript.pair_calls(messages, self._waiting_calls)

    async def path(self) -> Sequence[TranscriptEntry]:
        """Return the entries from the root to the leaf."""
        return EntryTree(await self._store.entries(self.session_id), self.leaf).path()

    async def entry_of_calls(self, call_ids: Sequence[str]) -> str:
        """Return the id of the last entry with one of these calls."""
        for entry in reversed(await self.path()):
            message = transcript.decode_message(entry)
            if message and any(call.id in call_ids for call in message.calls):
                return entry.id
        raise ConflictError("the calls are not in the transcript any more")

    async def apply_compaction(
        self, draft: NewEntry, fields: Mapping[str, Json], extra_writes: ExtraWrites
    ) -> None:
        """Save a compaction entry, and replace the messages before it by its summary."""
        await self._save((draft,), fields, self.leaf, extra_writes=extra_writes)
        self.pair_messages(await self.path())

    async def append(
        self,
        *items: Message | NewEntry,
        extra_writes: ExtraWrites | None = None,
        extra_fields: Mapping[str, Json] | None = None,
        is_use: bool = True,
    ) -> None:
        """Append to the transcript, in one transaction with the session's new figures.

        What is no use of the session changes neither the figures nor the time of its last use.
        """
        figures = self._figures(items)  # counts the tokens of the turn in any case
        fields = {**(figures if is_use else {}), **(extra_fields or {})}
        await self._save(items, fields, self.leaf, extra_writes=extra_writes, is_use=is_use)

    async def leave_turn(
        self,
        question_id: str,
        *items: Message,
        extra_writes: ExtraWrites,
        extra_fields: Mapping[str, Json] | None = None,
    ) -> None:
        """Append the end of a turn, and leave the turn on a branch of its own.

        The session continues from before the turn and does not count as used. A turn that has
        become a part of the conversation meanwhile stays on the path.
        """
        can_leave, base = transcript.find_turn_base(await self.path(), question_id)
        fields, leaf = extra_fields or {}, self.leaf

        def write(transaction: Transaction, entries: Sequence[TranscriptEntry]) -> None:
            if can_leave and self.leaf == leaf:  # no other writer added to the turn meanwhile
                transaction.set_leaf(self.session_id, base)
            extra_writes(transaction, entries)

        await self._save(items, fields, leaf, extra_writes=write, is_use=False)
        if can_leave:
            await self.read()

    async def copy_path(self, path: Sequence[TranscriptEntry], fields: Mapping[str, Json]) -> None:
        """Fill this session, which has no transcript, with the entries of another one.

        Raises ConflictError when it has one. What belongs to runs of the other session is left out.
        """
        if self.leaf is not None:
            raise ConflictError("the session has a transcript already")
        record = _with(self.record, fields, self._clock.now_ms())
        entries = transcript.copy_entries(path)
        await self._commit(record, entries, None, has_same_skills=False)
        self.record = replace(record, version=record.version + 1)
        await self.read()

    async def record_command(
        self,
        reply: Message | None,
        fields: Mapping[str, Json],
        extra_writes: ExtraWrites | None = None,
    ) -> None:
        """Save the reply and the changed fields of a command; the session is not marked as used."""
        items = (reply,) if reply else ()
        await self._save(items, fields, self.leaf, extra_writes=extra_writes, is_use=False)

    async def update(self, **fields: Json) -> None:
        """Set fields of the session's entry; None removes one."""
        await self._save((), fields, self.leaf)

    async def set_model(self, provider: str | None, model: str | None) -> None:
        """Set the model of the session; None means the agent's."""
        await self.update(**choice_fields(provider, model), modelFallbacks=None)

    async def set_label(self, label: str) -> None:
        await self.update(label=parse_session_label(label))

    async def reset(self) -> None:
        """Start a new transcript under the same key; the old one is archived."""
        now_ms = self._clock.now_ms()
        kept = {k: v for k, v in self.record.data.items() if k not in _TRANSCRIPT_FIELDS}
        data = {**kept, "systemSent": False, "abortedLastRun": False, "compactionCount": 0}
        old = self.record
        record = replace(old, session_id=str(uuid4()), updated_ms=now_ms, data=data)
        if old.version:
            async with self._store.transaction() as transaction:
                transaction.put_session(record)
                if self.leaf is not None or self._ids:
                    transaction.archive(old.session_id, "reset", now_ms)
            stored = await self._store.session(old.key)
            record = stored or record
        self._start(record)

    def is_current(self, stored: SessionRevision | None) -> bool:
        """Return whether no other process wrote since, given the revision that is stored now."""
        if stored is None or not self.record.version:
            return stored is None and not self.record.version
        loaded = SessionRevision(self.record.version, self.session_id, self.leaf)
        return stored == loaded and not self._stale

    def _field(self, name: str) -> str | None:
        value = self.record.data.get(name)
        return value if isinstance(value, str) and value else None

    def _changes(self, provider: str, model: str, thinking: str, api: str) -> list[NewEntry]:
        drafts: list[NewEntry] = []
        new_model = (provider, model) != (self._settings.provider, self._settings.model)
        if new_model:
            drafts.append(transcript.model_change(provider, model))
        if thinking != self._settings.thinking:
            drafts.append(transcript.thinking_level_change(thinking))
        if new_model and api:
            now_ms = self._clock.now_ms()
            drafts.append(transcript.model_snapshot(provider, api, model, now_ms))
        return drafts

    def _figures(self, items: Sequence[Message | NewEntry]) -> dict[str, Json]:
        """Return the fields of the record that a model's answers change."""
        fields: dict[str, Json] = {}
        for item in items:
            if not isinstance(item, Message) or item.origin is None:
                continue
            origin = item.origin
            self._usage += origin.usage
            fields |= {
                "systemSent": True,
                "abortedLastRun": origin.stop == "aborted",
                "modelProvider": origin.provider,
                "model": origin.model,
            }
            if origin.usage.total:
                fields |= {
                    "inputTokens": self._usage.input,
                    "outputTokens": self._usage.output,
                    "cacheRead": self._usage.cache_read or None,  # absent: no cache was used
                    "cacheWrite": self._usage.cache_write or None,
                    "totalTokens": origin.usage.prompt,
                    "totalTokensFresh": True,
                }
        return fields

    async def _save(
        self,
        items: Sequence[Message | NewEntry],
        fields: Mapping[str, Json],
        parent: str | None,
        *,
        before: list[Message] | None = None,
        extra_writes: ExtraWrites | None = None,
        is_use: bool = True,
    ) -> None:
        """Write one transaction, then update this object; `before` replaces its messages."""
        now_ms = self._clock.now_ms()
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            record = _with(self.record, fields, now_ms if is_use else self.record.updated_ms)
            entries = self._entries(items, parent, now_ms)
            try:
                has_same_skills = bool(record.version) and SKILLS_FIELD not in fields
                await self._commit(record, entries, extra_writes, has_same_skills=has_same_skills)
            except ConflictError:
                if attempt == _MAX_ATTEMPTS or not await self._reload():
                    raise
                parent = self.leaf
            else:
                break
        self.record = replace(record, version=record.version + 1)
        if before is not None:
            self.messages[:] = before
        for item, entry in zip(items, entries, strict=True):
            self._apply(item, entry)

    async def _commit(
        self,
        record: SessionRecord,
        entries: Sequence[TranscriptEntry],
        extra_writes: ExtraWrites | None,
        *,
        has_same_skills: bool,
    ) -> None:
        async with self._store.transaction() as transaction:
            if self.leaf is None and entries:
                at_ms = record.updated_ms
                transaction.open_transcript(
                    TranscriptHeader(record.session_id, record.agent, at_ms, self._cwd)
                )
            transaction.put_session(
                record, if_version=record.version, has_same_skills=has_same_skills
            )
            if changed := _policy_changes(self.record, record):
                transaction.add_audit(_audit_entry(record, changed, self._clock.now_ms()))
            if entries:
                transaction.append(record.session_id, *entries)
            if extra_writes:
                extra_writes(transaction, entries)

    async def _reload(self) -> bool:
        """Reload what another process wrote, so that our entries follow it."""
        stored = await self._store.session(self.key)
        if stored is None or stored.session_id != self.session_id:
            return False  # it was reset or deleted meanwhile: this run has no session any more
        self.record, self.leaf = stored, await self._store.leaf(self.session_id)
        self._stale = True
        return True

    def _entries(
        self, items: Sequence[Message | NewEntry], parent: str | None, now_ms: int
    ) -> list[TranscriptEntry]:
        entries: list[TranscriptEntry] = []
        for item in items:
            entry_id = transcript.new_id(self._ids)
            draft = transcript.message_draft(item, now_ms) if isinstance(item, Message) else item
            entries.append(draft.at(entry_id, parent, now_ms))
            self._ids.add(entry_id)
            parent = entry_id
        return entries

    def _apply(self, item: Message | NewEntry, entry: TranscriptEntry) -> None:
        self.leaf = entry.id
        self._settings = transcript.apply_entry(self._settings, entry)
        if entry.type == "custom":
            self._waiting_calls |= transcript.waiting_calls_in([entry])
        elif entry.type == "custom_message" and (note := transcript.decode_message(entry)):
            self.messages.append(note)
        if isinstance(item, Message):
            self.messages.append(item)
            self._orphan = OrphanedMessage(entry.id, entry.parent) if item.role == "user" else None


class SessionRepository:
    """The sessions of a store; the most recently used ones stay loaded."""

    def __init__(self, store: Store, clock: Clock, *, max_cached: int = _DEFAULT_CACHED) -> None:
        self._store, self._clock, self._max_cached = store, clock, max_cached
        self._loaded: OrderedDict[str, Session] = OrderedDict()
        self._in_use: WeakValueDictionary[str, Session] = WeakValueDictionary()  # by a caller

    async def load(self, key: str, agent: str, *, cwd: str = "") -> Session:
        """Return the session of a key; a new one when there is none."""
        session = self._in_use.get(key)
        if session is None or not session.is_current(await self._store.revision(key)):
            record = await self._store.session(key)
            record = record or _new_record(key, agent, self._clock.now_ms())
            session = Session(self._store, self._clock, record, cwd)
            await session.read()
        self._loaded[key] = self._in_use[key] = session
        self._loaded.move_to_end(key)
        while len(self._loaded) > self._max_cached:
            self._loaded.popitem(last=False)
        return session

    def entry(self, key: str) -> Mapping[str, Json]:
        """Return the entry of a loaded session, as one with an active run is; else an empty one."""
        session = self._in_use.get(key)
        return session.record.data if session else {}

    async def data(self, key: str) -> Mapping[str, Json] | None:
        """Return the entry of a session; None when there is no such session."""
        session = self._in_use.get(key)
        if session:
            return session.record.data
        record = await self._store.session(key)
        return record.data if record else None

    def last_ms(self, key: str) -> int | None:
        """Return the time of a loaded session's last message; None when no model has seen one."""
        session = self._in_use.get(key)
        return session.last_ms if session and session.has_context else None

    async def delete(
        self,
        key: str,
        at_ms: int,
        *,
        keep_transcript: bool = False,
        extra_writes: Callable[[Transaction], None] = lambda _transaction: None,
    ) -> bool:
        """Delete a session; return whether there was one. Its transcript is archived, or kept."""
        record = await self._store.session(key)
        self._loaded.pop(key, None)
        self._in_use.pop(key, None)
        if record is None:
            return False
        async with self._store.transaction() as transaction:
            transaction.delete_session(key)
            if record.session_id and not keep_transcript:
                transaction.archive(record.session_id, "deleted", at_ms)
            extra_writes(transaction)
        return True


# Settings of a session that widen or narrow what it may do: a change of them is audited.
_POLICY_FIELDS: Final = (
    "execHost", "execSecurity", "execAsk", "execNode", "elevatedLevel", "sendPolicy",
    "groupActivation",
)  # fmt: skip


def _policy_changes(old: SessionRecord, new: SessionRecord) -> dict[str, Json]:
    return {
        name: f"{old.data.get(name, 'unset')} → {new.data.get(name, 'unset')}"
        for name in _POLICY_FIELDS
        if old.data.get(name) != new.data.get(name)
    }


def _audit_entry(record: SessionRecord, changed: dict[str, Json], at_ms: int) -> AuditEntry:
    data: dict[str, Json] = {"target": "session", "by": change_author(), "changed": changed}
    return AuditEntry(at_ms, "config", record.agent, record.key, data=data)


def _with(record: SessionRecord, fields: Mapping[str, Json], now_ms: int) -> SessionRecord:
    data = {**record.data, **fields}
    for name in [name for name, value in fields.items() if value is None]:
        del data[name]
    return replace(record, updated_ms=now_ms, data=data)


def _with_results(messages: list[Message], waiting: Mapping[str, str]) -> list[Message]:
    """Add a result to each of the last calls that has none, as after a crash of their run."""
    last = len(messages)
    while last and (
        messages[last - 1].role == "tool" or transcript.is_injected(messages[last - 1])
    ):
        last -= 1
    last = max(0, last - 1)
    return messages[:last] + transcript.pair_calls(messages[last:], waiting)


def _new_record(key: str, agent: str, now_ms: int) -> SessionRecord:
    return SessionRecord(key, agent, str(uuid4()), now_ms, {"chatType": _chat_type(key)})


def _chat_type(key: str) -> str:
    marks = key.split(":")
    return "group" if "group" in marks else "channel" if "channel" in marks else "direct"
