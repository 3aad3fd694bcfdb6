"""A sentence model by name, run by the `fastembed` package, which downloads it.

With a folder (`local.modelPath`) nothing is downloaded. The package knows which models distinguish
queries from documents.
"""

import hashlib
import importlib.util
import os
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from homarus.core.errors import MissingExtraError, StoreError, UnknownNameError, UnreachableError
from homarus.core.private_files import make_private_dir
from homarus.core.text import closest_names, one_line
from homarus.memory.embed.backends import AvailableEmbedder, EmbedderRequest
from homarus.memory.embed.base import EmbeddingModel, to_embeddable
from homarus.memory.embed.local import weights_cache
from homarus.memory.embed.onnx import TranslateModelErrors, trim_memory
from homarus.providers.verified_files import verify_file

DEFAULT: Final = "BAAI/bge-small-en-v1.5"
_BATCH = 16
_SHA256 = re.compile(r"[0-9a-f]{64}")
_LOADED = {".onnx", ".onnx_data"}
# Known without importing the package.
_DIMS: dict[str, int] = {DEFAULT: 384, "sentence-transformers/all-MiniLM-L6-v2": 384}


AUTO: Final = None  # only if the config names it


def create(request: EmbedderRequest) -> AvailableEmbedder:
    """Create the embedder of `memorySearch.model`. Raises MissingExtraError."""
    spec, search = request.spec, request.spec.search
    path = search.local.model_path if request.uses_settings else None
    name = (search.model if request.uses_settings else None) or DEFAULT
    folder = spec.file(path) if path else None
    cache_dir = weights_cache(spec) / "fastembed"
    return AvailableEmbedder(
        FastEmbedEmbedder(name, cache_dir, folder), f"{name} runs on this machine"
    )


class FastEmbedEmbedder:
    """One model, in the cache of weights or in a configured folder."""

    def __init__(self, name: str, cache_dir: Path, folder: Path | None = None) -> None:
        if importlib.util.find_spec("fastembed") is None:
            raise MissingExtraError("a sentence model by its name", "fastembed")
        self._name, self._cache_dir, self._folder = name, cache_dir, folder

    @property
    def model(self) -> EmbeddingModel:
        """Return the model; the dimensions of a rare one are read from the package."""
        dims = _DIMS.get(self._name) or int(self._described["dim"])
        # Weights in a user's folder are not those that the name stands for.
        folder = str(self._folder.resolve()) if self._folder else ""
        key = hashlib.sha256(folder.encode()).hexdigest()[:12] if folder else ""
        return EmbeddingModel("fastembed", self._name, dims, key)

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        if not texts:
            return []
        return _listed(
            self._model.passage_embed(list(map(to_embeddable, texts)), batch_size=_BATCH)
        )

    def embed_question(self, text: str) -> list[float]:
        return _listed(self._model.query_embed(to_embeddable(text)))[0]

    def close(self) -> None:
        """Free the weights."""
        self.__dict__.pop("_model", None)
        trim_memory()

    @cached_property
    def _described(self) -> dict[str, Any]:
        from fastembed import TextEmbedding

        known: dict[str, dict[str, Any]] = {
            one["model"].lower(): one for one in TextEmbedding.list_supported_models()
        }
        found = known.get(self._name.lower())
        if found is None:
            names = [one["model"] for one in known.values()]
            raise UnknownNameError(
                "model of fastembed", self._name, closest_names(self._name, names)
            )
        return found

    @cached_property
    def _model(self) -> Any:
        from fastembed import TextEmbedding

        described = self._described
        options: dict[str, Any] = {"threads": 1, "providers": ["CPUExecutionProvider"]}
        options["lazy_load"] = True  # what was downloaded is verified before it is loaded
        if self._folder is not None:
            needed = (described["model_file"], "tokenizer.json", "tokenizer_config.json")
            for name in needed:
                if not (self._folder / name).is_file():
                    fix = f"put the files of {self._name} there, or unset local.modelPath"
                    raise StoreError(f"there is no {self._folder / name}", fix=fix)
            options["specific_model_path"] = str(self._folder)
        try:
            if self._folder is None:
                make_private_dir(self._cache_dir)
            with TranslateModelErrors(self._folder or self._cache_dir):
                opened: Any = TextEmbedding(described["model"], str(self._cache_dir), **options)
                if self._folder is None:
                    verify_downloads(self._cache_dir)
                opened.model.load_onnx_model()
                return opened
        except (OSError, ValueError) as exc:
            raise UnreachableError(
                f"fastembed cannot have {self._name}: {one_line(str(exc), 200)}",
                fix="check the network for the first use, or name a folder in local.modelPath",
            ) from exc


def verify_downloads(cache_dir: Path) -> None:
    """Check what the package has downloaded; a changed file raises a StoreError.

    The Hugging Face cache names a large file after its SHA-256. A small one, or one of another
    source, is compared with what it was when it was downloaded.
    """
    for folder, _, names in os.walk(cache_dir):
        for file in (Path(folder) / name for name in names if not name.startswith(".")):
            if file.suffix in _LOADED or _SHA256.fullmatch(file.name):
                sha256 = file.name if _SHA256.fullmatch(file.name) else ""
                fix = f"delete {file.parent}: it is downloaded again"
                if not file.is_symlink():
                    verify_file(file, sha256, fix=fix)


def _listed(vectors: Iterable[Any]) -> list[list[float]]:
    """Return the vectors with length 1."""
    import numpy as np

    made = np.array(list(vectors), dtype=np.float32)
    lengths = np.maximum(np.linalg.norm(made, axis=1, keepdims=True), 1e-9)
    units: list[list[float]] = (made / lengths).tolist()
    return units
