"""Grok: a text with its sources, by the search of xAI's models."""

from collections.abc import Mapping
from typing import Any, Final

from homarus.config.web_schema import WebSearchConfig
from homarus.core.errors import FetchError
from homarus.tools.web.search.base import (
    SearchAccess,
    SearchAnswer,
    WebQuery,
    find_key,
    make_result,
)
from homarus.tools.web.service_request import WebServiceRequest, list_of_objects, request_json

LABEL: Final = "grok"
AUTO_ORDER: Final = 40
MIN_INTERVAL_S: Final = 0.5
FIX: Final = "set XAI_API_KEY or tools.web.search.grok.apiKey"
BASE_URL: Final = "https://api.x.ai/v1"


def find_access(config: WebSearchConfig, env: Mapping[str, str]) -> SearchAccess | None:
    """Return the key; None without one."""
    own = config.grok
    key, origin = find_key(own.api_key, "tools.web.search.grok.apiKey", env, "XAI_API_KEY")
    if not key:
        return None
    return SearchAccess(
        BASE_URL,
        origin,
        key,
        own.model,
        has_inline_citations=own.inline_citations,
        is_automatic=origin != "XAI_API_KEY",  # it is for models
    )


async def search(query: WebQuery, access: SearchAccess) -> SearchAnswer:
    """`POST /responses` with the tool `web_search` of the service itself."""
    body: dict[str, Any] = {
        "model": access.model,
        "input": [{"role": "user", "content": query.text}],
        "tools": [{"type": "web_search"}],
    }
    if not access.has_inline_citations:
        body["include"] = ["no_inline_citations"]
    found = await request_json(
        WebServiceRequest(
            "Grok",
            f"{access.base_url.rstrip('/')}/responses",
            access.api_key,
            body=body,
            timeout_s=access.timeout_s,
            fix=FIX,
        )
    )
    parts = [
        part
        for item in list_of_objects(found.get("output"))
        if item.get("type") == "message"
        for part in list_of_objects(item.get("content"))
        if part.get("type") == "output_text"
    ]
    content = "\n\n".join(part["text"] for part in parts if isinstance(part.get("text"), str))
    if not content:
        raise FetchError("Grok answered without a text", fix=FIX)
    notes = [note for part in parts for note in list_of_objects(part.get("annotations"))]
    listed = found.get("citations")
    addresses = [*(listed if isinstance(listed, list) else ()), *(n.get("url") for n in notes)]
    valid = (made.url for one in addresses if (made := make_result("", one)))
    return SearchAnswer(
        content=content,
        citations=tuple(dict.fromkeys(valid)),
        inline_citations=_inline(notes) if access.has_inline_citations else (),
        ignored=query.filters,
    )


def _inline(notes: list[dict[str, Any]]) -> tuple[Mapping[str, str | int], ...]:
    """Return where in the text which page is cited."""
    return tuple(
        {"url": note["url"], "start_index": note["start_index"], "end_index": note["end_index"]}
        for note in notes
        if isinstance(note.get("url"), str)
        and isinstance(note.get("start_index"), int)
        and isinstance(note.get("end_index"), int)
    )
