"""Builders of the databases of OpenClaw 2026.9, with the tables and columns that are read.

The shape was measured on homes that `openclaw@2026.9.6` made.
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import apsw

from homarus.core.message import Json

AT_MS = 1_789_034_400_000
# An event of 1222 bytes, compressed as OpenClaw does from 1024 bytes on.
PACKED_ID = "m2"
PACKED = base64.b64decode(
    "KLUv/WTGA/0PACYYRCAwbeIGQ2vo4lYMDtqx7bfE5q6EBUC3XNHHXJYcFBQUFTsAOgA5AN2yWTHnz3Xte8QpVzDGACDm"
    "GHMMkmCQhIFJDCiM4ueOZbMy1S9HDrrpS/dyBfs5Ui/XhmRW9nN1EP2ITTFQJkx2WOnAlKjkQE2NmjqVUysHopaoT1Mj"
    "N8sE9S1DFwjQVF8DskLHcqGmhJ/yftBeOO+m3TZ5eUpTp/LTxiZmJtQSZUKZWqVyak3d1KFMTR3K1NQttlqoZWPZkSvB"
    "Vq3W0+bFLgi0i20o09tdDExkFI+HMQYxAgIBxqCAADlvy6kIbptfjiSWomUvd0iW/fwpUo197uXcVrUuxzZJqGzq9ufK"
    "5QvD49nKseQOe6iBCimRpIySlNIBIEKjGDTbEBAJHU0zBoIkIEj/RHsH2NYFDwM7pQezXIkVogmUJRQiC4ZZ5S1PIv7I"
    "HRqIbXwI7XZri/Bbd510FUsppweKuflFCctQDrn1qCypkQG9q36xaUulMgAxmclJ0/ShjBo8ekjLu3NyHnoX3QE54MIv"
    "1Jti/XbWOl+zuswEwZe9DnKAqRzdpeTD2YiApIcKETQZBhiASsTbeIV5hYqbmF5TmPEPtLdgZIvwAD3dK5GYEaAYEhZX"
    "hmBvG4gAo16KgbwfHM9tCE9KzoKSKCnD9HeNkinh5385XuVw/gdDVwQ/"
)
PACKED_SHA256 = "74bcc5467b2213e89469a2b6b90f21d2980a9902b24b782aa481ff9f2a1afea8"

_AGENT_TABLES = """
CREATE TABLE session_nodes (session_key TEXT NOT NULL PRIMARY KEY,
  current_session_id TEXT NOT NULL, entry_json TEXT NOT NULL, updated_at INTEGER NOT NULL,
  archived_at INTEGER) STRICT;
CREATE TABLE session_windows (session_id TEXT NOT NULL PRIMARY KEY,
  session_key TEXT NOT NULL, updated_at INTEGER NOT NULL) STRICT;
CREATE TABLE transcript_events (session_id TEXT NOT NULL, seq INTEGER NOT NULL,
  event_json TEXT, created_at INTEGER NOT NULL, event_zstd BLOB, event_utf8_bytes INTEGER,
  navigation_json TEXT, PRIMARY KEY (session_id, seq)) STRICT;
CREATE TABLE session_transcript_index_state (session_id TEXT NOT NULL PRIMARY KEY,
  indexed_seq INTEGER NOT NULL, leaf_event_id TEXT, needs_rebuild INTEGER NOT NULL DEFAULT 0)
  STRICT;
CREATE TABLE session_transcript_cold_archives (session_id TEXT NOT NULL PRIMARY KEY,
  archive_name TEXT NOT NULL UNIQUE, archive_sha256 TEXT NOT NULL, storage TEXT NOT NULL,
  archive_blob BLOB) STRICT;
CREATE TABLE auth_profile_store (store_key TEXT NOT NULL PRIMARY KEY,
  store_json TEXT NOT NULL, updated_at INTEGER NOT NULL) STRICT;
CREATE TABLE auth_profile_state (state_key TEXT NOT NULL PRIMARY KEY,
  state_json TEXT NOT NULL, updated_at INTEGER NOT NULL) STRICT;
PRAGMA user_version = 23;
"""
_STATE_TABLES = """
CREATE TABLE agent_databases (agent_id TEXT NOT NULL, path TEXT NOT NULL,
  schema_version INTEGER NOT NULL, last_seen_at INTEGER NOT NULL,
  PRIMARY KEY (agent_id, path)) STRICT;
CREATE TABLE exec_approvals_config (config_key TEXT NOT NULL PRIMARY KEY,
  raw_json TEXT NOT NULL) STRICT;
CREATE TABLE config_machine_state (state_key TEXT NOT NULL PRIMARY KEY,
  value_json TEXT NOT NULL, updated_at_ms INTEGER NOT NULL) STRICT;
CREATE TABLE channel_pairing_allow_entries (channel_key TEXT NOT NULL, account_id TEXT NOT NULL,
  entry TEXT NOT NULL, sort_order INTEGER NOT NULL, updated_at INTEGER NOT NULL,
  PRIMARY KEY (channel_key, account_id, entry)) STRICT;
PRAGMA user_version = 18;
"""


def message(id_: str, parent: str | None, role: str, text: str, at_s: int = 0) -> dict[str, Json]:
    """Return a transcript event with one message."""
    content: Json = text if role == "user" else [{"type": "text", "text": text}]
    return {
        "type": "message",
        "id": id_,
        "parentId": parent,
        "timestamp": f"2026-09-10T10:00:{at_s:02d}.000Z",
        "message": {"role": role, "content": content, "timestamp": AT_MS + 1000 * at_s},
    }


def conversation(*texts: str, start: str = "m") -> list[dict[str, Json]]:
    """Return events: a user's message and an answer in turn."""
    ids = [f"{start}{number}" for number in range(1, len(texts) + 1)]
    return [
        message(id_, parent, "assistant" if number % 2 else "user", text, number)
        for number, (id_, parent, text) in enumerate(zip(ids, [None, *ids], texts, strict=False))
    ]


def zstd_frame(data: bytes) -> bytes:
    """Return a valid frame that contains the data uncompressed."""
    parts = [data[at : at + 65536] for at in range(0, len(data), 65536)] or [b""]
    blocks = b"".join(
        (len(part) << 3 | (number == len(parts) - 1)).to_bytes(3, "little") + part
        for number, part in enumerate(parts)
    )
    return b"\x28\xb5\x2f\xfd" + b"\x80\x58" + len(data).to_bytes(4, "little") + blocks


class AgentDatabase:
    """The session database of one agent, open for writing as OpenClaw has it: with a log."""

    def __init__(self, path: Path, *, tables: str = _AGENT_TABLES) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        is_new = not path.exists()
        self.path, self.db = path, apsw.Connection(str(path))
        self.db.execute("PRAGMA journal_mode = WAL").fetchall()
        if is_new:
            self.db.execute(tables).fetchall()

    def put_session(self, key: str, session_id: str, at_ms: int = AT_MS, **data: Json) -> None:
        entry = json.dumps({"sessionId": session_id, "updatedAt": at_ms, **data})
        self.db.execute(
            "INSERT OR REPLACE INTO session_nodes VALUES (?, ?, ?, ?, NULL)",
            (key, session_id, entry, at_ms),
        )

    def put_events(
        self, session_id: str, events: Sequence[dict[str, Json] | bytes], leaf: str | None = None
    ) -> None:
        """Append events, a header before the first; bytes are a compressed event."""
        ((seq,),) = self.db.execute(
            "SELECT coalesce(max(seq), -1) FROM transcript_events WHERE session_id = ?",
            (session_id,),
        ).fetchall()
        assert isinstance(seq, int)
        all_events = [header(session_id), *events] if seq < 0 else list(events)
        for number, event in enumerate(all_events, seq + 1):
            text = None if isinstance(event, bytes) else json.dumps(event, ensure_ascii=False)
            packed = event if isinstance(event, bytes) else None
            self.db.execute(
                "INSERT INTO transcript_events VALUES (?, ?, ?, ?, ?, ?, NULL)",
                (session_id, number, text, AT_MS, packed, 1222 if packed else None),
            )
        last = all_events[-1]
        known = leaf or (PACKED_ID if isinstance(last, bytes) else str(last["id"]))
        self.db.execute(
            "INSERT OR REPLACE INTO session_transcript_index_state VALUES (?, ?, ?, 0)",
            (session_id, seq + len(all_events), known),
        )

    def put_cold(
        self, session_id: str, events: Sequence[dict[str, Json]], *, in_file: bool
    ) -> bytes:
        """Store a transcript the way OpenClaw extracts it; return the archive."""
        records: list[Json] = [
            {"kind": "header", "version": 1, "sessionId": session_id, "generation": "g"}
        ]
        for seq, event in enumerate([header(session_id), *events]):
            row = {"seq": seq, "event_json": json.dumps(event), "created_at": AT_MS}
            records.append({"kind": "event", "row": row})
        index = {"indexed_seq": len(events), "leaf_event_id": events[-1]["id"], "needs_rebuild": 0}
        records.append({"kind": "index", "row": index})
        data = zstd_frame("".join(json.dumps(record) + "\n" for record in records).encode())
        digest = hashlib.sha256(data).hexdigest()
        name = f"{digest}.jsonl.zst"
        if in_file:
            folder = self.path.parent.parent / "sessions" / "cold"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        values = (session_id, name, digest, *(("file", None) if in_file else ("sqlite", data)))
        self.db.execute(
            "INSERT INTO session_transcript_cold_archives VALUES (?, ?, ?, ?, ?)", values
        )
        return data

    def close(self) -> None:
        """Close it as OpenClaw does: the log is written back and deleted."""
        self.db.close()


def header(session_id: str) -> dict[str, Json]:
    at = "2026-09-10T10:00:00.000Z"
    return {"type": "session", "version": 4, "id": session_id, "timestamp": at, "cwd": "/w"}


def agent_database(state: Path, agent: str = "main") -> AgentDatabase:
    """Create a home of OpenClaw 2026.9, if it does not exist, and open an agent's database."""
    make_state_database(state, {})
    return AgentDatabase(state / "agents" / agent / "agent" / "openclaw-agent.sqlite")


def make_state_database(state: Path, agents: dict[str, str], approvals: Sequence[str] = ()) -> None:
    """Create `state/openclaw.sqlite`: the databases of agents, and rules for commands."""
    database = AgentDatabase(state / "state" / "openclaw.sqlite", tables=_STATE_TABLES)
    with closing(database):
        for agent, path in agents.items():
            database.db.execute(
                "INSERT INTO agent_databases VALUES (?, ?, 23, ?)", (agent, path, AT_MS)
            )
        for number, text in enumerate(approvals):
            values = (str(number), text)
            database.db.execute("INSERT INTO exec_approvals_config VALUES (?, ?)", values)


def put_profiles(
    state: Path, profiles: dict[str, Json], order: dict[str, Json] | None = None, agent: str = ""
) -> None:
    """Store model credentials: those of one agent, or those that all agents share."""
    values = [json.dumps({"version": 1, "profiles": profiles})]
    values += [json.dumps({"version": 1, "order": order})] if order else []
    if agent:
        with closing(agent_database(state, agent)) as database:
            for table, text in zip(("store", "state"), values, strict=False):
                sql = f"INSERT OR REPLACE INTO auth_profile_{table} VALUES (?, ?, ?)"
                database.db.execute(sql, (agent, text, AT_MS))
        return
    make_state_database(state, {})
    with closing(AgentDatabase(state / "state" / "openclaw.sqlite")) as database:
        for key, text in zip(("store", "state"), values, strict=False):
            sql = "INSERT OR REPLACE INTO config_machine_state VALUES (?, ?, ?)"
            database.db.execute(sql, (f"authProfiles.{key}", text, AT_MS))


def put_senders(state: Path, *senders: str, account: str = "default") -> None:
    """Store approved senders of Telegram."""
    make_state_database(state, {})
    with closing(AgentDatabase(state / "state" / "openclaw.sqlite")) as database:
        for number, sender in enumerate(senders):
            database.db.execute(
                "INSERT INTO channel_pairing_allow_entries VALUES ('telegram', ?, ?, ?, ?)",
                (account, sender, number, AT_MS),
            )


def file_contents(folder: Path) -> dict[str, bytes]:
    """Return the bytes of every file below a folder."""
    files = (file for file in sorted(folder.rglob("*")) if file.is_file())
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}
