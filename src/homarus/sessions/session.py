"""A session: a conversation's record and transcript, loaded once and then kept up.

    sessions = Sessions(store, clock)
    session = await sessions.load("agent:main:main", "main", cwd=workspace)
    await session.begin(question, provider="openai", model="gpt-5")   # one commit
    await session.append(answer)                                       # one commit

Every change of a session is one unit: the entries and the record with its new figures. A turn in
a long conversation costs what it costs in a short one, because a loaded session is used again
until its version or its leaf says that somebody else wrote.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias
from uuid import uuid4
from weakref import WeakValueDictionary

from homarus.core.clock import Clock
from homarus.core.errors import Conflict, UserError
from homarus.core.message import Address, Json, Message, Usage
from homarus.sessions import transcript
from homarus.sessions.last_route import route_fields
from homarus.sessions.transcript import Draft, Orphan, Settings, Tree
from homarus.store.base import Entry, Header, SessionRecord, Store, Unit

# What else belongs into the unit that saves these entries.
Also: TypeAlias = Callable[[Unit, Sequence[Entry]], None]

MAX_LABEL_CHARS: Final = 64
_KEPT = 32  # loaded sessions
_ATTEMPTS = 3
# What a new transcript under an old key starts without.
_OF_A_TRANSCRIPT: Final = frozenset(
    {
        "sessionFile", "systemSent", "abortedLastRun", "inputTokens", "outputTokens",
        "totalTokens", "totalTokensFresh", "cacheRead", "cacheWrite", "compactionCount",
        "memoryFlushAt",
        "memoryFlushCompactionCount", "skillsSnapshot", "systemPromptReport",
    }
)  # fmt: skip


def parse_session_label(raw: object) -> str:
    """A label a person gave a session: trimmed, and neither empty nor long."""
    if not isinstance(raw, str):
        raise UserError("invalid label: must be a string")
    label = raw.strip()
    if not label:
        raise UserError("invalid label: empty")
    if len(label) > MAX_LABEL_CHARS:
        raise UserError(f"invalid label: too long (max {MAX_LABEL_CHARS})")
    return label


class Session:
    """One conversation. Made by `Session.load` or, kept, by `Sessions.load`.

    `messages` is the conversation as a model gets it; it grows with `begin` and `append`.
    """

    def __init__(self, store: Store, clock: Clock, record: SessionRecord, cwd: str = "") -> None:
        self._store, self._clock, self._cwd = store, clock, cwd
        self._start(record)

    def _start(
        self, record: SessionRecord, entries: Sequence[Entry] = (), leaf: str | None = None
    ) -> None:
        path = Tree(entries, leaf).path()
        self.record = record
        self.leaf = leaf
        self.messages = transcript.pair_calls(transcript.messages_of(path))
        self._ids = {entry.id for entry in entries}
        self._settings: Settings = transcript.settings_of(path)
        self._orphan: Orphan | None = transcript.orphan_of(path)
        self._usage = Usage()  # of the run since `begin`
        self._stale = False  # somebody wrote between two of our writes

    @classmethod
    async def load(
        cls, store: Store, clock: Clock, key: str, agent: str, *, cwd: str = ""
    ) -> "Session":
        """The session of this key; a new one, not stored until it is used, when there is none."""
        record = await store.session(key) or _new_record(key, agent, clock.now_ms())
        session = cls(store, clock, record, cwd)
        await session.read()
        return session

    async def read(self) -> None:
        """Read the transcript of the record at hand."""
        record = self.record
        if not record.session_id:  # a damaged entry of somebody else's sessions.json
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
    def thinking(self) -> str | None:
        """The thinking level chosen for this session."""
        return self._field("thinkingLevel")

    @property
    def profile(self) -> str:
        """The credential this session keeps to, if it has one."""
        return self._field("authProfileOverride") or ""

    @property
    def profile_locked(self) -> bool:
        """Whether a person chose that credential: then no other is tried."""
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
        """Whether anything was said here; what the gateway says is not counted."""
        return self.last_ms is not None

    @property
    def last_ms(self) -> int | None:
        """When something was last said here; None when nothing was."""
        said = (m.at_ms for m in reversed(self.messages) if not transcript.is_injected(m))
        return next(said, None)

    async def begin(
        self, question: Message, *, provider: str, model: str, thinking: str = "off",
        api: str = "", window: int | None = None, came_by: Address | None = None,
        also: Also | None = None, news: Mapping[str, Json] | None = None,
    ) -> None:  # fmt: skip
        """Save what a run starts with: the question, and what has changed since the last run.

        `news` are fields of the record that the run knows more about.

        A question that nobody answered is left on a branch of its own, so that two never follow
        each other.
        """
        self._usage = Usage()
        messages, parent = self.messages, self.leaf
        if self._orphan:
            messages, parent = messages[:-1], self._orphan.parent
        drafts = self._changes(provider, model, thinking, api)
        fields = {"abortedLastRun": False, **({"contextTokens": window} if window else {})}
        if came_by:
            fields |= route_fields(self.record.data, came_by, key=self.key)
        fields |= news or {}
        await self._save((*drafts, question), fields, parent, before=_mended(messages), also=also)

    async def go_on(self, asked_by: Sequence[str], also: Also) -> list[Message] | None:
        """Take up a run that broke off, given the entries of its questions: what was said since.

        None when the first of them is no longer where we are, or somebody else has asked since.
        An answer that was cut short is left on a branch of its own. Calls without a result stay
        without one: who goes on knows which of them were started.
        """
        path = await self.path()
        asked = next((n for n, one in enumerate(path) if one.id == asked_by[0]), None)
        if asked is None or transcript.questions_in(path[asked:]) - set(asked_by):
            return None
        kept = path[: len(path) - transcript.cut_short(path[asked + 1 :])]
        leaf = kept[-1].id
        async with self._store.commit() as unit:
            if leaf != self.leaf:
                unit.set_leaf(self.session_id, leaf)
            also(unit, ())
        self.leaf, self._orphan = leaf, None
        whole = transcript.messages_of(kept)
        open_calls = next((n for n in range(len(whole) - 1, -1, -1) if whole[n].calls), len(whole))
        self.messages = transcript.pair_calls(whole[:open_calls]) + whole[open_calls:]
        return transcript.messages_of(kept[asked + 1 :])

    async def path(self) -> Sequence[Entry]:
        """The entries from the root to where the conversation stands."""
        return Tree(await self._store.entries(self.session_id), self.leaf).path()

    async def compacted(self, draft: Draft, fields: Mapping[str, Json], also: Also) -> None:
        """A summary stands in for what came before: one entry, and the messages begin anew."""
        await self._save((draft,), fields, self.leaf, also=also)
        self.messages[:] = transcript.pair_calls(transcript.messages_of(await self.path()))

    async def append(self, *items: Message | Draft, also: Also | None = None) -> None:
        """Add to the transcript, in order, in one unit with the session's new figures."""
        await self._save(items, self._figures(items), self.leaf, also=also)

    async def note(
        self, reply: Message | None, fields: Mapping[str, Json], also: Also | None = None
    ) -> None:
        """Save what a command changes and answers. That is no use of the conversation."""
        items = (reply,) if reply else ()
        await self._save(items, fields, self.leaf, also=also, is_use=False)

    async def update(self, **fields: Json) -> None:
        """Change settings of the session; None takes one away."""
        await self._save((), fields, self.leaf)

    async def set_model(self, provider: str | None, model: str | None) -> None:
        """Use this model for the session from now on; None goes back to the agent's."""
        await self.update(providerOverride=provider, modelOverride=model)

    async def set_thinking(self, level: str | None) -> None:
        await self.update(thinkingLevel=level)

    async def set_label(self, label: str) -> None:
        await self.update(label=parse_session_label(label))

    async def reset(self) -> None:
        """Start over under the same key: a new transcript; the old one is put aside."""
        now_ms = self._clock.now_ms()
        kept = {k: v for k, v in self.record.data.items() if k not in _OF_A_TRANSCRIPT}
        data = {**kept, "systemSent": False, "abortedLastRun": False, "compactionCount": 0}
        old = self.record
        record = replace(old, session_id=str(uuid4()), updated_ms=now_ms, data=data)
        if old.version:
            async with self._store.commit() as unit:
                unit.put_session(record)
                if self.leaf is not None:
                    unit.archive(old.session_id, "reset", now_ms)
            stored = await self._store.session(old.key)
            record = stored or record
        self._start(record)

    async def is_current(self, record: SessionRecord | None) -> bool:
        """Whether nothing was written behind our back, given the record as it is stored now."""
        if record is None or not self.record.version:
            return record is None and not self.record.version
        same = (record.version, record.session_id) == (self.record.version, self.session_id)
        return same and not self._stale and await self._store.leaf(self.session_id) == self.leaf

    def _field(self, name: str) -> str | None:
        value = self.record.data.get(name)
        return value if isinstance(value, str) and value else None

    def _changes(self, provider: str, model: str, thinking: str, api: str) -> list[Draft]:
        drafts: list[Draft] = []
        new_model = (provider, model) != (self._settings.provider, self._settings.model)
        if new_model:
            drafts.append(transcript.model_change(provider, model))
        if thinking != self._settings.thinking:
            drafts.append(transcript.thinking_level_change(thinking))
        if new_model and api:
            now_ms = self._clock.now_ms()
            drafts.append(transcript.model_snapshot(provider, api, model, now_ms))
        return drafts

    def _figures(self, items: Sequence[Message | Draft]) -> dict[str, Json]:
        """What answers of a model change in the record."""
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
                    "cacheRead": self._usage.cache_read or None,  # not there: none was used
                    "cacheWrite": self._usage.cache_write or None,
                    "totalTokens": origin.usage.prompt,
                    "totalTokensFresh": True,
                }
        return fields

    async def _save(
        self,
        items: Sequence[Message | Draft],
        fields: Mapping[str, Json],
        parent: str | None,
        *,
        before: list[Message] | None = None,
        also: Also | None = None,
        is_use: bool = True,
    ) -> None:
        """One unit; what is in memory changes only after it. `before` replaces the messages."""
        now_ms = self._clock.now_ms()
        for attempt in range(1, _ATTEMPTS + 1):
            record = _with(self.record, fields, now_ms if is_use else self.record.updated_ms)
            entries = self._entries(items, parent, now_ms)
            try:
                await self._commit(record, entries, also)
            except Conflict:
                if attempt == _ATTEMPTS or not await self._adopt():
                    raise
                parent = self.leaf
            else:
                break
        self.record = replace(record, version=record.version + 1)
        if before is not None:
            self.messages[:] = before
        for item, entry in zip(items, entries, strict=True):
            self._note(item, entry)

    async def _commit(
        self, record: SessionRecord, entries: Sequence[Entry], also: Also | None
    ) -> None:
        async with self._store.commit() as unit:
            if self.leaf is None and entries:
                at_ms = record.updated_ms
                unit.open_transcript(Header(record.session_id, record.agent, at_ms, self._cwd))
            unit.put_session(record, if_version=record.version)
            if entries:
                unit.append(record.session_id, *entries)
            if also:
                also(unit, entries)

    async def _adopt(self) -> bool:
        """Somebody wrote since: take that, so that ours goes on top of it."""
        stored = await self._store.session(self.key)
        if stored is None or stored.session_id != self.session_id:
            return False  # it was reset or deleted under us: this run has no session any more
        self.record, self.leaf = stored, await self._store.leaf(self.session_id)
        self._stale = True
        return True

    def _entries(
        self, items: Sequence[Message | Draft], parent: str | None, now_ms: int
    ) -> list[Entry]:
        entries: list[Entry] = []
        for item in items:
            entry_id = transcript.new_id(self._ids)
            draft = transcript.message_draft(item, now_ms) if isinstance(item, Message) else item
            entries.append(draft.at(entry_id, parent, now_ms))
            self._ids.add(entry_id)
            parent = entry_id
        return entries

    def _note(self, item: Message | Draft, entry: Entry) -> None:
        self.leaf = entry.id
        self._settings = transcript.after(self._settings, entry)
        if isinstance(item, Message):
            self.messages.append(item)
            self._orphan = Orphan(entry.id, entry.parent) if item.role == "user" else None


class Sessions:
    """The sessions of a store; the last ones used stay loaded."""

    def __init__(self, store: Store, clock: Clock, *, kept: int = _KEPT) -> None:
        self._store, self._clock, self._kept = store, clock, kept
        self._loaded: OrderedDict[str, Session] = OrderedDict()
        self._held: WeakValueDictionary[str, Session] = WeakValueDictionary()  # by somebody

    async def load(self, key: str, agent: str, *, cwd: str = "") -> Session:
        """The session of this key; a new one when there is none."""
        record = await self._store.session(key)
        session = self._held.get(key)
        if session is None or not await session.is_current(record):
            record = record or _new_record(key, agent, self._clock.now_ms())
            session = Session(self._store, self._clock, record, cwd)
            await session.read()
        self._loaded[key] = self._held[key] = session
        self._loaded.move_to_end(key)
        while len(self._loaded) > self._kept:
            self._loaded.popitem(last=False)
        return session

    def entry(self, key: str) -> Mapping[str, Json]:
        """The settings of a session that is at hand, as one with a live run is; else none."""
        session = self._held.get(key)
        return session.record.data if session else {}

    async def data(self, key: str) -> Mapping[str, Json] | None:
        """What a session's record says; None when there is no such session."""
        session = self._held.get(key)
        if session:
            return session.record.data
        record = await self._store.session(key)
        return record.data if record else None

    def last_ms(self, key: str) -> int | None:
        """When something was last said in a session at hand; None when nothing was."""
        session = self._held.get(key)
        return session.last_ms if session else None

    async def delete(self, key: str, at_ms: int, *, keep_transcript: bool = False) -> bool:
        """Forget a session; whether there was one. Its transcript is put aside, or left there."""
        record = await self._store.session(key)
        self._loaded.pop(key, None)
        self._held.pop(key, None)
        if record is None:
            return False
        async with self._store.commit() as unit:
            unit.delete_session(key)
            if record.session_id and not keep_transcript:
                unit.archive(record.session_id, "deleted", at_ms)
        return True

    async def list(
        self, *, agent: str | None = None, since_ms: int = 0, limit: int | None = None
    ) -> Sequence[SessionRecord]:
        """Records, newest first."""
        return await self._store.sessions(agent=agent, since_ms=since_ms, limit=limit)


def _with(record: SessionRecord, fields: Mapping[str, Json], now_ms: int) -> SessionRecord:
    data = {**record.data, **fields}
    for name in [name for name, value in fields.items() if value is None]:
        del data[name]
    return replace(record, updated_ms=now_ms, data=data)


def _mended(messages: list[Message]) -> list[Message]:
    """The messages with their last calls answered: a run may have been cut between the two."""
    last = len(messages)
    while last and (
        messages[last - 1].role == "tool" or transcript.is_injected(messages[last - 1])
    ):
        last -= 1
    last = max(0, last - 1)
    return messages[:last] + transcript.pair_calls(messages[last:])


def _new_record(key: str, agent: str, now_ms: int) -> SessionRecord:
    return SessionRecord(key, agent, str(uuid4()), now_ms, {"chatType": _chat_type(key)})


def _chat_type(key: str) -> str:
    marks = key.split(":")
    return "group" if "group" in marks else "channel" if "channel" in marks else "direct"
