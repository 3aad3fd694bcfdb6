"""Memory responses as JSON, the same for the command line and for gateway clients."""

from collections.abc import Sequence

from homarus.core.message import Json
from homarus.memory.base import FallbackNotice, MemoryStatus, NoteExcerpt, NoteWrite, SearchResponse
from homarus.memory.index import SyncReport
from homarus.memory.note_files import SkippedFile
from homarus.memory.results import SearchResult


def answer_json(answer: SearchResponse) -> dict[str, Json]:
    """Encode a search response with OpenClaw's names, plus `backend` and `notes`."""
    return {
        "results": [result_json(result) for result in answer.results],
        "provider": answer.provider,
        "model": answer.model,
        "backend": answer.backend,
        "mode": "fts-only" if answer.provider == "none" else "hybrid",
        "fallback": fallback_json(answer.fallback),
        "notes": list(answer.notes),
    }


def result_json(result: SearchResult) -> dict[str, Json]:
    """Encode one result with its citation."""
    return {
        "path": result.path,
        "startLine": result.start_line,
        "endLine": result.end_line,
        "score": round(result.score, 6),
        "snippet": result.snippet,
        "source": result.source,
        "citation": result.citation,
    }


def fallback_json(fallback: FallbackNotice | None) -> Json:
    """Encode what should have been used, and why it was not."""
    return {"from": fallback.wanted, "reason": fallback.why} if fallback else None


def status_json(status: MemoryStatus) -> dict[str, Json]:
    """Encode the status of a memory."""
    return {
        "agentId": status.agent,
        "workspaceDir": status.workspace,
        "dbPath": status.database,
        "backend": status.backend,
        "provider": status.provider,
        "model": status.model,
        "why": status.why,
        "files": status.files,
        "lines": status.lines,
        "chunks": status.chunks,
        "vectors": status.vectors,
        "generation": status.generation,
        "sources": list(status.sources),
        "dirty": status.dirty,
        "tested": status.tested,
        "fallback": fallback_json(status.fallback),
        "problem": status.problem,
        "notes": list(status.notes),
        "recall": recall_json(status.recall_ms),
    }


def recall_json(durations_ms: Sequence[int]) -> Json:
    """Encode how long the latest searches took; None before the first one."""
    if not durations_ms:
        return None
    ordered = sorted(durations_ms)
    return {
        "count": len(ordered),
        "p50Ms": ordered[len(ordered) // 2],
        "p95Ms": ordered[min(len(ordered) - 1, len(ordered) * 95 // 100)],
        "lastMs": durations_ms[-1],
    }


def report_json(report: SyncReport) -> dict[str, Json]:
    """Encode the report of a sync."""
    return {
        "indexed": list(report.indexed),
        "removed": list(report.removed),
        "unchanged": report.unchanged,
        "skipped": [skipped_json(one) for one in report.skipped],
        "notUtf8": list(report.inexact),
        "lines": report.lines,
        "embedded": report.embedded,
        "unembedded": report.unembedded,
        "problem": report.problem,
        "generation": report.generation,
        "rebuilt": report.rebuilt,
    }


def skipped_json(skipped: SkippedFile) -> dict[str, Json]:
    """Encode a file that is not in the index, and the reason."""
    return {"path": skipped.path, "why": skipped.why}


def excerpt_json(excerpt: NoteExcerpt) -> dict[str, Json]:
    """Encode lines of a note, as `memory_get` returns them."""
    return {
        "path": excerpt.path,
        "text": excerpt.text,
        "from": excerpt.from_line,
        "lines": excerpt.lines,
        "more": excerpt.more,
    }


def written_json(written: NoteWrite) -> dict[str, Json]:
    """Encode where text was written."""
    return {
        "path": written.path,
        "startLine": written.start_line,
        "endLine": written.end_line,
        "added": written.added,
    }
