"""The client of a registry: ClawHub's HTTP API.

Every request goes through the network guard. The host that the owner named may be a private one; a
host that the site, a redirect or a response names may not. What a registry says is not trusted:
every value is checked here, and texts are shown with their invisible characters escaped. A token is
sent with the requests that need one, to the origin of the registry and to no other.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote, urlencode, urljoin, urlsplit

from homarus.core.errors import FetchError, HomarusError, UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.text import one_line
from homarus.net.guard import PUBLIC_ONLY, NetworkPolicy
from homarus.net.guarded_fetch import FetchedResponse, FetchLimits, guarded_fetch
from homarus.skills.hub.archive import MAX_ARCHIVE_BYTES
from homarus.skills.hub.entry_names import check_entry_path, check_owner, check_slug
from homarus.skills.hub.registry_address import (
    RegistryAddress,
    check_url,
    is_safe_for_token,
    url_origin,
)
from homarus.skills.hub.skill_files import SkillFile
from homarus.skills.hub.versions import parse_version

_API: Final = "/api/v1"
_WELL_KNOWN: Final = ("/.well-known/clawhub.json", "/.well-known/clawdhub.json")
_JSON_LIMITS: Final = FetchLimits(max_bytes=4_000_000, total_s=30.0)
_FILE_LIMITS: Final = FetchLimits(max_bytes=MAX_ARCHIVE_BYTES, total_s=300.0)
_MAX_TEXT_CHARS: Final = 2_000


class RegistryError(UserError):
    """A registry refuses a request, or answers what it should not."""

    code = "registry"

    def __init__(self, message: str, *, fix: str = "", status: int = 0) -> None:
        super().__init__(message, fix=fix)
        self.status = status


@dataclass(frozen=True, slots=True)
class FoundSkill:
    """One result of a search."""

    slug: str
    name: str
    summary: str
    version: str
    owner: str
    score: float = 0.0


@dataclass(frozen=True, slots=True)
class RegistrySkill:
    """What a registry says of one skill."""

    slug: str
    name: str
    summary: str
    owner: str
    latest: str
    updated_at_ms: int
    tags: Mapping[str, str]
    is_suspicious: bool = False
    is_blocked: bool = False
    verdict: str = ""


@dataclass(frozen=True, slots=True)
class ListedVersion:
    """One version in the history of a skill."""

    version: str
    created_at_ms: int
    changelog: str


@dataclass(frozen=True, slots=True)
class VersionFiles:
    """The files of a version: path → SHA-256; None when the registry does not say."""

    version: str
    changelog: str
    hashes: Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class Publication:
    """A version that is to be published."""

    slug: str
    name: str
    version: str
    changelog: str
    files: tuple[SkillFile, ...]
    tags: tuple[str, ...] = ("latest",)


class RegistryClient:
    """A registry, by its address. `policy` is the owner's network policy."""

    def __init__(
        self,
        address: RegistryAddress,
        *,
        token: str = "",
        policy: NetworkPolicy = PUBLIC_ONLY,
    ) -> None:
        self._address, self._token = address, token
        named = urlsplit(address.url).hostname or ""
        self._policy = replace(policy, allowed_hosts=policy.allowed_hosts | {named.lower()})
        self._base = "" if address.is_site else address.url

    async def base_url(self) -> str:
        """Return the address of the API; a site is asked for it once."""
        if not self._base:
            self._base = await self._discover()
        return self._base

    async def _discover(self) -> str:
        for path in _WELL_KNOWN:
            response = await self._fetch("GET", self._address.url + path)
            if response.status != 200:
                continue
            content = _parse_object(response)
            found = content.get("apiBase") or content.get("registry")
            if isinstance(found, str) and found:
                return check_url(found)
        return self._address.url

    async def search(self, query: str, limit: int) -> list[FoundSkill]:
        """Return the skills that match a query, the best first."""
        content = await self._get("/search", {"q": query, "limit": str(limit)})
        found = [_found_skill(row) for row in _rows(content.get("results"))]
        return [skill for skill in found if skill is not None][:limit]

    async def skill(self, slug: str, owner: str = "") -> RegistrySkill:
        """Return what is known of a skill. Raises RegistryError."""
        content = await self._get(f"/skills/{quote(slug, safe='')}", _owner(owner))
        skill = content.get("skill")
        if not isinstance(skill, dict) or skill.get("slug") != slug:
            raise RegistryError(f"the registry has no skill {slug}", status=404)
        latest, judged = content.get("latestVersion"), content.get("moderation")
        judged = judged if isinstance(judged, dict) else {}
        tags = skill.get("tags")
        publisher = content.get("owner")
        return RegistrySkill(
            slug,
            _text(skill.get("displayName"), 120) or slug,
            _text(skill.get("summary")),
            _handle(publisher.get("handle") if isinstance(publisher, dict) else None),
            _version(latest.get("version") if isinstance(latest, dict) else None),
            _whole(skill.get("updatedAt")),
            {_text(tag, 40): _text(value, 64) for tag, value in tags.items()}
            if isinstance(tags, dict)
            else {},
            judged.get("isSuspicious") is True,
            judged.get("isMalwareBlocked") is True,
            _text(judged.get("summary") or judged.get("verdict"), 300),
        )

    async def versions(self, slug: str, owner: str = "", limit: int = 25) -> list[ListedVersion]:
        """Return the newest versions of a skill."""
        query = {"limit": str(limit), **_owner(owner)}
        content = await self._get(f"/skills/{quote(slug, safe='')}/versions", query)
        return [
            ListedVersion(version, _whole(row.get("createdAt")), _text(row.get("changelog")))
            for row in _rows(content.get("items"))
            if (version := _version(row.get("version")))
        ]

    async def version(self, slug: str, version: str, owner: str = "") -> VersionFiles:
        """Return the files of a version with their hashes."""
        path = f"/skills/{quote(slug, safe='')}/versions/{quote(version, safe='')}"
        found = (await self._get(path, _owner(owner))).get("version")
        if not isinstance(found, dict) or found.get("version") != version:
            raise RegistryError(f"the registry has no version {version} of {slug}", status=404)
        hashes: dict[str, str] | None = None
        if isinstance(found.get("files"), list):
            hashes = {}
            for row in _rows(found["files"]):
                hashes[check_entry_path(str(row.get("path", "")))] = str(row.get("sha256", ""))
        return VersionFiles(version, _text(found.get("changelog")), hashes)

    async def file(self, slug: str, version: str, path: str, owner: str = "") -> bytes:
        """Return one file of a version."""
        query = {"path": path, "version": version, **_owner(owner)}
        url = f"{await self.base_url()}{_API}/skills/{quote(slug, safe='')}/file?{urlencode(query)}"
        return self._check(await self._fetch("GET", url, limits=_FILE_LIMITS)).body

    async def download(self, slug: str, version: str, owner: str = "") -> bytes:
        """Return the archive of a version."""
        query = {"slug": slug, **_owner(owner), "version": version}
        url = f"{await self.base_url()}{_API}/download?{urlencode(query)}"
        return self._check(await self._fetch("GET", url, limits=_FILE_LIMITS)).body

    async def who_am_i(self) -> str:
        """Return the handle that the token belongs to. Raises RegistryError."""
        content = _parse_object(self._check(await self._send("GET", "/whoami")))
        user = content.get("user")
        return check_owner(str(user.get("handle", ""))) if isinstance(user, dict) else ""

    async def publish(self, publication: Publication) -> str:
        """Upload the files of a version and publish it; return the id that it got."""
        owner = await self.who_am_i()
        uploaded = [await self._upload(file) for file in publication.files]
        content = {
            "slug": publication.slug,
            "displayName": publication.name,
            "ownerHandle": owner,
            "version": publication.version,
            "changelog": publication.changelog,
            "acceptLicenseTerms": True,
            "tags": list(publication.tags),
            "files": uploaded,
        }
        answer = _parse_object(self._check(await self._send("POST", "/skills", content)))
        return _text(answer.get("versionId"), 100)

    async def _upload(self, file: SkillFile) -> dict[str, Any]:
        kind = "text/markdown" if file.path.endswith(".md") else "application/octet-stream"
        row = {"path": file.path, "size": len(file.data), "sha256": file.sha256}
        asked = await self._send("POST", "/skills/-/upload-url", {**row, "contentType": kind})
        ticket = _parse_object(self._check(asked))
        url = urljoin(await self.base_url() + "/", str(ticket.get("uploadUrl", "")))
        headers = {"Content-Type": kind}
        if url_origin(url) == url_origin(await self.base_url()):
            headers |= self._authorization(url)
        sent = await self._fetch("POST", url, headers=headers, body=file.data, limits=_FILE_LIMITS)
        stored = _parse_object(self._check(sent)).get("storageId")
        return {
            **row,
            "storageId": str(stored),
            "contentType": kind,
            "uploadTicket": str(ticket.get("uploadTicket", "")),
        }

    def _authorization(self, url: str) -> dict[str, str]:
        if not self._token:
            fix = "set CLAWHUB_TOKEN, or log in with `clawhub login --token TOKEN`"
            raise RegistryError("this needs a token of the registry", fix=fix, status=401)
        if self._address.is_site and url_origin(url) != self._address.origin:
            fix = f"name the registry: --registry {url_origin(url)[0]}://{url_origin(url)[1]}"
            raise RegistryError("the token is not sent to a host that only the site names", fix=fix)
        if not is_safe_for_token(url):
            raise RegistryError("a token is not sent without encryption", fix="use https://")
        return {"Authorization": f"Bearer {self._token}"}

    async def _send(
        self, method: str, path: str, content: Mapping[str, Any] | None = None
    ) -> FetchedResponse:
        """Send a request with the token."""
        url = f"{await self.base_url()}{_API}{path}"
        headers = {"Accept": "application/json", **self._authorization(url)}
        body = b""
        if content is not None:
            headers["Content-Type"] = "application/json"
            body = json.dumps(content).encode()
        return await self._fetch(method, url, headers=headers, body=body)

    async def _get(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        parameters = f"?{urlencode(query)}" if query else ""
        url = f"{await self.base_url()}{_API}{path}{parameters}"
        headers = {"Accept": "application/json"}
        return _parse_object(self._check(await self._fetch("GET", url, headers=headers)))

    async def _fetch(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        limits: FetchLimits = _JSON_LIMITS,
    ) -> FetchedResponse:
        if body:  # a redirect would send it once more
            limits = replace(limits, max_redirects=0)
        try:
            return await guarded_fetch(
                url, method=method, headers=headers, body=body, limits=limits, policy=self._policy
            )
        except HomarusError as exc:  # of the guard and of the connection: texts for a model
            kind = "could not be reached" if isinstance(exc, FetchError) else "is not allowed"
            raise RegistryError(f"the registry {kind}: {exc.message}") from exc

    def _check(self, response: FetchedResponse) -> FetchedResponse:
        """Return a response that is a success. Raises RegistryError with what it says."""
        if 200 <= response.status < 300:
            return response
        said = one_line(response.body[:2_000].decode("utf-8", "replace"), 200)
        fix = {
            401: "check the token: CLAWHUB_TOKEN, or `clawhub login`",
            429: "wait a minute, and try again",
        }.get(response.status, "")
        text = f"the registry answered {response.status}: {said or 'without a reason'}"
        raise RegistryError(text, fix=fix, status=response.status)


def check_hashes(files: tuple[SkillFile, ...], listed: VersionFiles) -> None:
    """Raise RegistryError when an archive is not what the registry says of the version.

    ClawHub adds a file of its own, `_meta.json`, which is in no list.
    """
    if listed.hashes is None:
        return
    unpacked = {file.path: hashlib.sha256(file.data).hexdigest() for file in files}
    if "_meta.json" not in listed.hashes:
        unpacked.pop("_meta.json", None)
    for path in sorted({*unpacked, *listed.hashes}):
        if unpacked.get(path) != listed.hashes.get(path):
            raise RegistryError(
                f"the archive of version {listed.version} was changed: "
                f"{one_line(path, 80)} is not what the registry lists",
                fix="do not use it; tell the publisher or the owner of the registry",
            )


def _owner(handle: str) -> dict[str, str]:
    return {"ownerHandle": handle} if handle else {}


def _parse_object(response: FetchedResponse) -> dict[str, Any]:
    try:
        content = json.loads(response.body)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise RegistryError("the registry did not answer with JSON: is the address right?")
    return content


def _rows(value: object) -> list[dict[str, Any]]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def _text(value: object, max_chars: int = _MAX_TEXT_CHARS) -> str:
    """Return a text of a registry, safe to print."""
    return one_line(value, max_chars) if isinstance(value, str) else ""


def _whole(value: object) -> int:
    return int(value) if isinstance(value, int | float) and abs(value) < 1e15 else 0


def _version(value: object) -> str:
    try:
        return parse_version(value).text if isinstance(value, str) else ""
    except UserError:
        return ""


def _handle(value: object) -> str:
    try:
        return check_owner(value) if isinstance(value, str) and value else ""
    except UserError:
        return ""


def _found_skill(row: Mapping[str, Any]) -> FoundSkill | None:
    try:
        slug = check_slug(str(row.get("slug", "")))
    except UserError:
        return None  # not one that we could install
    publisher = row.get("owner")
    handle = row.get("ownerHandle") or (
        publisher.get("handle") if isinstance(publisher, dict) else None
    )
    score = row.get("score")
    return FoundSkill(
        slug,
        _text(row.get("displayName"), 120) or slug,
        _text(row.get("summary"), 300),
        _version(row.get("version")),
        _handle(handle),
        float(score) if isinstance(score, int | float) else 0.0,
    )
