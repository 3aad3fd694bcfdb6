"""Static word vectors from the `wordllama` package: no download, no model to run.

The package contains its weights and its tokenizer, but its loader looks for the tokenizer in
another folder and then on the network. Therefore both files are read here; the weights are a table
of numbers behind a small JSON header (the safetensors format).
"""

import importlib.util
import json
import struct
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from homarus.core.errors import MissingExtraError, StoreError
from homarus.memory.embed.backends import AutoSelection, AvailableEmbedder, EmbedderRequest
from homarus.memory.embed.base import EmbeddingModel, to_embeddable

_WEIGHTS = "weights/l2_supercat_256.safetensors"
_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
_TYPES = {"F16": "<f2", "F32": "<f4"}
_MOST_HEADER_BYTES = 1 << 20


AUTO: Final = AutoSelection(order=50)


def create(request: EmbedderRequest) -> AvailableEmbedder:
    """Create the embedder. Raises MissingExtraError."""
    return AvailableEmbedder(WordLlamaEmbedder(), "static word vectors are on this machine")


class WordLlamaEmbedder:
    """Embeds a text as the normalised mean of its word vectors."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or _installed()

    @property
    def model(self) -> EmbeddingModel:
        return EmbeddingModel("wordllama", "l2_supercat_256", 256, weight=0.5)

    @cached_property
    def _table(self) -> Any:
        return read_table(self._folder / _WEIGHTS)

    @cached_property
    def _tokenizer(self) -> Any:
        from tokenizers import Tokenizer

        made = Tokenizer.from_file(str(self._folder / _TOKENIZER))
        made.no_padding()
        made.no_truncation()
        return made

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        import numpy as np

        vectors: list[list[float]] = []
        said = list(map(to_embeddable, texts))
        for found in self._tokenizer.encode_batch(said, add_special_tokens=False):
            mean = self._table[found.ids].mean(axis=0, dtype=np.float32) if found.ids else None
            length = float(np.linalg.norm(mean)) if mean is not None else 0.0
            unit = mean / length if mean is not None and length else np.zeros(self.model.dims)
            vectors.append(unit.tolist())
        return vectors


def _installed() -> Path:
    """Return the folder of the package, without importing it."""
    found = [importlib.util.find_spec(name) for name in ("numpy", "tokenizers", "wordllama")]
    package = found[-1]
    if None in found or package is None or package.origin is None:
        raise MissingExtraError("static word vectors", "vectors")
    return Path(package.origin).parent


def read_table(path: Path) -> Any:
    """Map the one table of a safetensors file into memory."""
    import numpy as np

    try:
        with path.open("rb") as file:
            (size,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(min(size, _MOST_HEADER_BYTES)))
        (one,) = (value for name, value in header.items() if name != "__metadata__")
        rows, columns = one["shape"]
        start = 8 + size + one["data_offsets"][0]
        kind = np.dtype(_TYPES[one["dtype"]])
        return np.memmap(path, kind, mode="r", offset=start, shape=(rows, columns))
    except (OSError, ValueError, KeyError, TypeError, struct.error) as exc:
        raise StoreError(
            f"{path} is not a table of word vectors: {exc}", fix="install wordllama again"
        ) from exc
