"""The HTTP API of a registry, as the `clawhub` program and our client use it.

Reading is open to everybody who reaches the port; writing needs a token. Errors are one line of
text, which clients show as they are.
"""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from homarus.core.clock import Clock
from homarus.core.errors import UserError
from homarus.core.text import one_line
from homarus.gateway.hub_server.hub_folder import (
    HubFolder,
    HubRefusalError,
    NewVersion,
    PublishedSkill,
    PublishedVersion,
)
from homarus.gateway.hub_server.hub_limits import HubRateLimiter
from homarus.gateway.hub_server.hub_search import rank_skills
from homarus.gateway.hub_server.hub_tokens import HubTokens
from homarus.gateway.hub_server.hub_uploads import HubUploads
from homarus.skills.hub.skill_files import (
    MAX_FILE_BYTES,
    MAX_FILES,
    MAX_TOTAL_BYTES,
    SkillFile,
)

MAX_JSON_BYTES: Final = 1 << 20
MAX_LIMIT: Final = 200
READS_PER_MINUTE: Final = 600
WRITES_PER_MINUTE: Final = 3_000  # a version of a thousand files has two for each
FAILURES_PER_MINUTE: Final = 20
_API: Final = "/api/v1"
_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Cache-Control": "no-store",
}
Answer: TypeAlias = Callable[[Request], Awaitable[Response]]


class HubRoutes:
    """The routes of a registry."""

    def __init__(
        self, folder: HubFolder, tokens: HubTokens, clock: Clock, public_url: str = ""
    ) -> None:
        self._folder, self._tokens, self._public_url = folder, tokens, public_url
        self._uploads = HubUploads(clock)
        self._reads = HubRateLimiter(clock, READS_PER_MINUTE)
        self._writes = HubRateLimiter(clock, WRITES_PER_MINUTE)
        self._failures = HubRateLimiter(clock, FAILURES_PER_MINUTE)

    def app(self) -> Starlette:
        """Return the ASGI application."""
        skill = f"{_API}/skills/{{slug}}"
        reads: tuple[tuple[str, Answer], ...] = (
            ("/.well-known/clawhub.json", self._well_known),
            (f"{_API}/search", self._search),
            (f"{_API}/skills", self._list),
            (f"{_API}/resolve", self._resolve),
            (f"{_API}/download", self._download),
            (skill, self._skill),
            (f"{skill}/moderation", self._moderation),
            (f"{skill}/versions", self._versions),
            (f"{skill}/versions/{{version}}", self._version),
            (f"{skill}/file", self._file),
            ("/health", self._health),
        )
        writes: tuple[tuple[str, str, Answer], ...] = (
            ("POST", f"{_API}/skills/-/upload-url", self._open_upload),
            ("POST", f"{_API}/skills/-/uploads/{{ticket}}", self._upload),
            ("POST", f"{_API}/skills", self._publish),
            ("GET", f"{_API}/whoami", self._who_am_i),
            ("DELETE", skill, self._delete),
            ("POST", f"{skill}/undelete", self._undelete),
            ("DELETE", f"{skill}/versions/{{version}}", self._withdraw),
            ("POST", f"{skill}/versions/{{version}}/restore", self._restore),
        )
        routes = [
            Route(path, self._guarded(answer, is_write=True), methods=[method])
            for method, path, answer in writes
        ]
        routes += [
            Route(path, self._guarded(answer, is_write=False), methods=["GET"])
            for path, answer in reads
        ]
        return Starlette(routes=routes, exception_handlers={HTTPException: _not_found})

    def _guarded(self, answer: Answer, *, is_write: bool) -> Answer:
        async def respond(request: Request) -> Response:
            limiter = self._writes if is_write else self._reads
            try:
                _check_rate(limiter, request)
                response = await answer(request)
            except HubRefusalError as exc:
                response = PlainTextResponse(exc.message, exc.status)
                if exc.status == 429:
                    response.headers["Retry-After"] = "10"
            except UserError as exc:
                response = PlainTextResponse(exc.message, 400)
            except ClientDisconnect:
                response = PlainTextResponse("The request ended early", 400)
            response.headers.update(_HEADERS)
            return response

        return respond

    async def _well_known(self, request: Request) -> Response:
        return JSONResponse({"apiBase": self._base_url(request)})

    async def _health(self, _request: Request) -> Response:
        return JSONResponse({"ok": True, "skills": len(self._folder.all())})

    async def _search(self, request: Request) -> Response:
        query = request.query_params.get("q", "")
        skills = self._folder.all()
        if request.query_params.get("mode") == "exact":
            skills = [skill for skill in skills if skill.slug == query]
        hits = rank_skills(query, skills)[: _limit(request)]
        return JSONResponse({"results": [_search_row(score, skill) for score, skill in hits]})

    async def _list(self, request: Request) -> Response:
        prefix = request.query_params.get("prefix", "")
        found = [skill for skill in self._folder.all() if skill.slug.startswith(prefix)]
        if prefix:
            found.sort(key=lambda skill: skill.slug)
        else:
            found.sort(key=lambda skill: -_updated_at_ms(skill))
        start, limit = _cursor(request), _limit(request)
        rows = [
            _skill_row(skill) | {"latestVersion": _version_row(skill.latest)}
            for skill in found[start : start + limit]
        ]
        following = str(start + limit) if start + limit < len(found) else None
        return JSONResponse({"items": rows, "nextCursor": following})

    async def _skill(self, request: Request) -> Response:
        skill = self._find(request)
        return JSONResponse(
            {
                "skill": _skill_row(skill),
                "latestVersion": _version_row(skill.latest),
                "owner": {"handle": skill.owner, "displayName": skill.owner},
                "moderation": _judgement(skill.latest),
            }
        )

    async def _moderation(self, request: Request) -> Response:
        latest = self._find(request).latest
        evidence = {"evidence": latest.findings if latest else []}
        return JSONResponse({"moderation": _judgement(latest) | evidence})

    async def _versions(self, request: Request) -> Response:
        skill, start, limit = self._find(request), _cursor(request), _limit(request)
        rows = [_version_row(each) for each in skill.available[start : start + limit]]
        following = str(start + limit) if start + limit < len(skill.available) else None
        return JSONResponse({"items": rows, "nextCursor": following})

    async def _version(self, request: Request) -> Response:
        skill = self._find(request)
        version = _available(skill, request.path_params["version"])
        row = _version_row(version) | {
            "files": version.files,
            "fingerprint": version.content.get("fingerprint"),
        }
        name = {"slug": skill.slug, "displayName": _name(skill)}
        return JSONResponse({"version": row, "skill": name})

    async def _resolve(self, request: Request) -> Response:
        skill = self._find(request, request.query_params.get("slug", ""))
        wanted = request.query_params.get("hash", "")
        match = next(
            (each for each in skill.available if each.content.get("fingerprint") == wanted), None
        )
        return JSONResponse(
            {
                "match": {"version": match.version.text} if match else None,
                "latestVersion": {"version": skill.latest.version.text} if skill.latest else None,
            }
        )

    async def _download(self, request: Request) -> Response:
        skill = self._find(request, request.query_params.get("slug", ""))
        version = _available(skill, self._wanted_version(skill, request))
        data = await asyncio.to_thread(self._folder.archive, skill, version)
        name = f"{skill.slug}-{version.version.text}.zip"
        headers = {
            "Content-Disposition": f'attachment; filename="{name}"',
            "ETag": f'"{hashlib.sha256(data).hexdigest()}"',
        }
        return Response(data, media_type="application/zip", headers=headers)

    async def _file(self, request: Request) -> Response:
        skill = self._find(request)
        version = _available(skill, self._wanted_version(skill, request))
        files = await asyncio.to_thread(self._folder.read_files, skill, version)
        path = request.query_params.get("path", "")
        found = next((file for file in files if file.path == path), None)
        if found is None:
            raise HubRefusalError("File not found", 404)
        return Response(found.data, media_type="text/plain")

    async def _who_am_i(self, request: Request) -> Response:
        handle = self._publisher(request)
        return JSONResponse({"user": {"handle": handle, "displayName": handle}})

    async def _open_upload(self, request: Request) -> Response:
        handle = self._publisher(request)
        content = await _read_json(request)
        ticket = self._uploads.open(handle, content.get("size"), content.get("sha256"))
        url = f"{self._base_url(request)}{_API}/skills/-/uploads/{ticket.id}"
        return JSONResponse({"uploadUrl": url, "uploadTicket": ticket.id})

    async def _upload(self, request: Request) -> Response:
        handle = self._publisher(request)
        data = await _read_body(request, MAX_FILE_BYTES)
        self._uploads.store(request.path_params["ticket"], handle, data)
        return JSONResponse({"storageId": request.path_params["ticket"]})

    async def _publish(self, request: Request) -> Response:
        handle = self._publisher(request)
        content = await _read_json(request)
        named = content.get("ownerHandle")
        if named and str(named).removeprefix("@") != handle:
            raise HubRefusalError(f"This token publishes as @{handle} only", 403)
        rows = content.get("files")
        new = self._new_version(content, handle, rows if isinstance(rows, list) else [])
        added = await asyncio.to_thread(self._folder.publish, new, handle)
        self._uploads.close([str(row.get("storageId")) for row in rows or ()])
        return JSONResponse(
            {
                "ok": True,
                "skillId": new.slug,
                "versionId": f"{new.slug}@{added.version.text}",
                "slug": new.slug,
                "version": added.version.text,
                "status": "published",
                "publicationStatus": "published",
            }
        )

    def _new_version(self, content: Mapping[str, Any], handle: str, rows: list[Any]) -> NewVersion:
        if not rows or len(rows) > MAX_FILES or not all(isinstance(row, dict) for row in rows):
            raise HubRefusalError(f"A version has 1 to {MAX_FILES} files", 400)
        files = tuple(
            SkillFile(
                str(row.get("path", "")),
                self._uploads.read(str(row.get("storageId")), handle, str(row.get("sha256"))),
            )
            for row in rows
        )
        if sum(len(file.data) for file in files) > MAX_TOTAL_BYTES:
            raise HubRefusalError(f"A version has at most {MAX_TOTAL_BYTES} bytes", 413)
        return NewVersion(
            str(content.get("slug", "")),
            str(content.get("version", "")),
            str(content.get("displayName", "")),
            str(content.get("changelog", "")),
            files,
            _texts(content.get("tags")),
            _texts(content.get("topics")),
        )

    async def _delete(self, request: Request) -> Response:
        return await self._mark(request, is_deleted=True)

    async def _undelete(self, request: Request) -> Response:
        return await self._mark(request, is_deleted=False)

    async def _mark(self, request: Request, *, is_deleted: bool) -> Response:
        handle, slug = self._publisher(request), request.path_params["slug"]
        await asyncio.to_thread(self._folder.set_deleted, slug, handle, is_deleted=is_deleted)
        return JSONResponse({"ok": True})

    async def _withdraw(self, request: Request) -> Response:
        return await self._mark_version(request, is_withdrawn=True)

    async def _restore(self, request: Request) -> Response:
        return await self._mark_version(request, is_withdrawn=False)

    async def _mark_version(self, request: Request, *, is_withdrawn: bool) -> Response:
        handle = self._publisher(request)
        slug, version = request.path_params["slug"], request.path_params["version"]
        await asyncio.to_thread(
            self._folder.set_withdrawn, slug, version, handle, is_withdrawn=is_withdrawn
        )
        return JSONResponse({"ok": True, "slug": slug, "version": version})

    def _publisher(self, request: Request) -> str:
        """Return whose token a request has. Raises HubRefusalError."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        handle = self._tokens.find_handle(token.strip()) if scheme.lower() == "bearer" else ""
        if not handle:
            _check_rate(self._failures, request)
            raise HubRefusalError("Unauthorized: a valid token is needed", 401)
        return handle

    def _find(self, request: Request, slug: str = "") -> PublishedSkill:
        owner = request.query_params.get("ownerHandle", "")
        return self._folder.find(slug or request.path_params.get("slug", ""), owner)

    def _wanted_version(self, skill: PublishedSkill, request: Request) -> str:
        named = request.query_params.get("version") or ""
        return named or skill.tags.get(request.query_params.get("tag") or "latest", "")

    def _base_url(self, request: Request) -> str:
        return self._public_url or f"{request.url.scheme}://{request.url.netloc}"


def _check_rate(limiter: HubRateLimiter, request: Request) -> None:
    wait_s = limiter.take(request.client.host if request.client else "")
    if wait_s:
        raise HubRefusalError("Too many requests; try again later", 429)


async def _not_found(_request: Request, exc: Exception) -> Response:
    status = exc.status_code if isinstance(exc, HTTPException) else 500
    return PlainTextResponse("Not found: this registry does not have it", status, dict(_HEADERS))


async def _read_body(request: Request, max_bytes: int) -> bytes:
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > max_bytes:
            raise HubRefusalError(f"The request has more than {max_bytes} bytes", 413)
    return bytes(data)


async def _read_json(request: Request) -> dict[str, Any]:
    try:
        content = json.loads(await _read_body(request, MAX_JSON_BYTES))
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise HubRefusalError("The request is not a JSON object", 400)
    return content


def _texts(value: object) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, list) else ()


def _limit(request: Request) -> int:
    text = request.query_params.get("limit", "25")[:6]
    return max(1, min(MAX_LIMIT, int(text))) if text.isdecimal() else 25


def _cursor(request: Request) -> int:
    text = request.query_params.get("cursor", "0")[:9]
    return int(text) if text.isdecimal() else 0


def _available(skill: PublishedSkill, version: str) -> PublishedVersion:
    found = skill.find(version)
    if found is None or found.is_withdrawn:
        raise HubRefusalError("Version not found", 404)
    return found


def _name(skill: PublishedSkill) -> str:
    return str(skill.latest.content.get("displayName", skill.slug)) if skill.latest else skill.slug


def _updated_at_ms(skill: PublishedSkill) -> int:
    return max((each.created_at_ms for each in skill.available), default=skill.created_at_ms)


def _skill_row(skill: PublishedSkill) -> dict[str, Any]:
    content = skill.latest.content if skill.latest else {}
    return {
        "slug": skill.slug,
        "displayName": _name(skill),
        "summary": content.get("summary"),
        "topics": content.get("topics", []),
        "tags": skill.tags,
        "stats": {"versions": len(skill.available)},
        "createdAt": skill.created_at_ms,
        "updatedAt": _updated_at_ms(skill),
    }


def _search_row(score: float, skill: PublishedSkill) -> dict[str, Any]:
    content = skill.latest.content if skill.latest else {}
    return {
        "slug": skill.slug,
        "displayName": _name(skill),
        "summary": content.get("summary"),
        "version": content.get("version"),
        "ownerHandle": skill.owner,
        "score": score,
        "updatedAt": _updated_at_ms(skill),
    }


def _version_row(version: PublishedVersion | None) -> dict[str, Any]:
    if version is None:  # a skill without a version is not offered
        return {}
    return {
        "version": version.version.text,
        "createdAt": version.created_at_ms,
        "changelog": str(version.content.get("changelog", "")),
    }


def _judgement(version: PublishedVersion | None) -> dict[str, Any]:
    """Return what the check at publishing found, in the form of ClawHub's moderation."""
    findings = version.findings if version else []
    bad = [each for each in findings if each.get("severity") == "critical"]
    codes = sorted({str(each.get("code")) for each in bad})
    return {
        "isSuspicious": bool(bad),
        "isMalwareBlocked": False,
        "verdict": "suspicious" if bad else "clean",
        "reasonCodes": codes,
        "summary": one_line(f"found: {', '.join(codes)}", 300) if codes else None,
    }
