"""The built control UI: its files on disk, and the responses that serve them.

The build writes `index.html`, `routes.txt` (the paths of the pages) and `assets/`, whose names have
a hash of their content; beside a file is its compressed form. Files are read for each request and
not kept in memory.
"""

import os
import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from homarus.core.fast_dataclass import dataclass

FOLDER: Final = Path(__file__).parent / "static_ui"
_TYPES: Final = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
_PATH: Final = re.compile(r"[a-z][a-z-]{0,30}")
_INDEX: Final = "index.html"
# A changed file has another name, so a browser needs to load each one once.
_IMMUTABLE: Final = "public, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True)
class UiFiles:
    """The files of one build."""

    folder: Path

    @classmethod
    def find(cls) -> "UiFiles | None":
        """Return the UI of this installation; None without one, or when it is switched off."""
        is_off = os.environ.get("HOMARUS_NO_UI", "") not in {"", "0"}
        return None if is_off or not (FOLDER / _INDEX).is_file() else cls(FOLDER)

    def pages(self) -> list[str]:
        """Return the paths where the UI is served."""
        named = (self.folder / "routes.txt").read_text(encoding="ascii").split()
        return ["/", *(f"/{path}" for path in named if _PATH.fullmatch(path))]

    def respond_with_index(self, request: Request, headers: Mapping[str, str]) -> Response:
        """Return the page; a browser asks each time, so that an update is seen at once."""
        data = (self.folder / _INDEX).read_bytes()
        tag = f'"{sha256(data).hexdigest()[:16]}"'
        shown = {**headers, "Cache-Control": "no-cache", "ETag": tag}
        seen = request.headers.get("if-none-match", "")
        if tag in (each.strip().removeprefix("W/") for each in seen.split(",")):
            return Response(status_code=304, headers=shown)
        return Response(data, headers=shown, media_type=_TYPES[".html"])

    def respond_with_asset(
        self, name: str, request: Request, headers: Mapping[str, str]
    ) -> Response | None:
        """Return an asset; None when the build has no asset of this name."""
        folder = self.folder / "assets"
        kind = _TYPES.get(Path(name).suffix)
        if kind is None or name not in os.listdir(folder):  # noqa: PTH208 - names alone
            return None
        file, shown = folder / name, {**headers, "Cache-Control": _IMMUTABLE}
        shown["Vary"] = "Accept-Encoding"
        packed = file.with_name(f"{name}.gz")
        if "gzip" in request.headers.get("accept-encoding", "") and packed.is_file():
            file = packed
            shown["Content-Encoding"] = "gzip"
        return Response(file.read_bytes(), headers=shown, media_type=kind)
