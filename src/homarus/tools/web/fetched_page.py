"""A page that was fetched and read, and how it is shown to a model and to programs."""

from dataclasses import replace
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Literal, TypeAlias

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.core.text import one_line

ExtractMode: TypeAlias = Literal["markdown", "text"]
# How the text of a page was found. `raw` is text as the server sent it.
Extractor: TypeAlias = Literal["readability", "html", "pdf", "json", "markdown", "raw", "firecrawl"]


@dataclass(frozen=True, slots=True)
class FetchedPage:
    """The readable text of a page. `warning` says why the text may not be what was asked for."""

    url: str
    final_url: str
    status: int
    content_type: str
    mode: ExtractMode
    extractor: Extractor
    text: str
    title: str = ""
    is_truncated: bool = False
    warning: str = ""
    fetched_at_ms: int = 0
    took_ms: int = 0

    def cut(self, max_chars: int) -> "FetchedPage":
        """Return the page with at most so many characters of text."""
        if len(self.text) <= max_chars:
            return self
        return replace(self, text=self.text[:max_chars], is_truncated=True)

    def details(self, *, is_cached: bool) -> dict[str, Json]:
        """Return the page for clients and programs."""
        at = datetime.fromtimestamp(self.fetched_at_ms / 1000, UTC)
        details: dict[str, Json] = {
            "url": self.url,
            "finalUrl": self.final_url,
            "status": self.status,
            "contentType": self.content_type,
            "title": self.title,
            "extractMode": self.mode,
            "extractor": self.extractor,
            "truncated": self.is_truncated,
            "length": len(self.text),
            "fetchedAt": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "tookMs": self.took_ms,
            "text": self.text,
        }
        if self.warning:
            details["warning"] = self.warning
        if is_cached:
            details["cached"] = True
        return details

    def show(self) -> str:
        """Return the page for a model: what it is in a few lines, then its text."""
        kind = ", ".join(filter(None, (f"status {self.status}", self.content_type)))
        lines = [f"Title: {self.title}"] if self.title else []
        lines.append(f"URL: {shown_url(self.final_url)} ({kind})")
        if self.warning:
            lines.append(f"Note: {self.warning}")
        text = self.text or "(the page has no text)"
        end = f"\n\n[cut after {len(self.text)} characters]" if self.is_truncated else ""
        return "\n".join(lines) + f"\n\n{text}{end}"


def describe_status(status: int) -> str:
    """Return a status with its name, as `404 Not Found`."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def shown_url(url: str) -> str:
    """Return a URL for a message."""
    return one_line(url, 300)
