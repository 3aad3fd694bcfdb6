"""A sentence model in a local folder, run by onnxruntime: `model.onnx` and `tokenizer.json`.

It is made for MiniLM and similar models. The vector of a text is the mean of the last layer over
its tokens, or that of the first token if the folder says so (`1_Pooling/config.json`), or what the
model itself returns.
"""

import hashlib
import importlib.util
import json
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from homarus.core.errors import MissingExtraError, StoreError, UserError
from homarus.core.text import one_line
from homarus.memory.embed.base import EmbeddingModel, to_embeddable

_BATCH = 4  # larger batches are slower here: short texts are padded to the longest
MAX_TOKENS: Final = 256
_FIX = "name a folder with model.onnx and tokenizer.json, or run `homarus models pull minilm`"
_MODEL_FILES = ("model.onnx", "onnx/model.onnx", "model_quantized.onnx", "model_optimized.onnx")
_MAX_CONFIG_BYTES = 1 << 20
_MARK_BYTES = 1 << 20


class OnnxEmbedder:
    """Runs with one thread and no arena: half the memory, and not slower for single lines."""

    def __init__(
        self,
        model_file: Path,
        tokenizer_file: Path,
        name: str,
        dims: int = 384,
        *,
        key: str = "",
        first_word: bool = False,
        verify: Callable[[], None] = lambda: None,
    ) -> None:
        check_extra()
        for file in (model_file, tokenizer_file):
            if not file.is_file():
                raise UserError(f"there is no {file}", fix=_FIX)
        self._model_file = model_file
        self._tokenizer_file = tokenizer_file
        self._first_word = first_word
        self._verify = verify  # before a file is loaded
        self._name, self._dims, self._key = name, dims, key

    @property
    def model(self) -> EmbeddingModel:
        """Return the model; if the folder does not state its dimensions, one text is embedded."""
        if not self._dims:
            self._dims = len(self.embed(["size"])[0])
        return EmbeddingModel("local", self._name, self._dims, self._key)

    @cached_property
    def _session(self) -> Any:
        self._verify()
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.enable_cpu_mem_arena = False
        options.enable_mem_pattern = False
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        providers = ["CPUExecutionProvider"]
        with TranslateModelErrors(self._model_file):
            return onnxruntime.InferenceSession(str(self._model_file), options, providers=providers)

    @cached_property
    def _tokenizer(self) -> Any:
        self._verify()
        from tokenizers import Tokenizer

        try:
            text = self._tokenizer_file.read_text(encoding="utf-8", errors="replace")
        except OSError as exc:  # it was there when this object was created
            raise _unreadable(self._tokenizer_file, exc.strerror) from exc
        with TranslateModelErrors(self._tokenizer_file):
            made = Tokenizer.from_str(text)
        made.enable_truncation(MAX_TOKENS)
        made.enable_padding(pad_id=0, pad_token="[PAD]")  # noqa: S106 - a token of the tokenizer
        return made

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Embed texts of similar length together, to pad little."""
        order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
        vectors: list[list[float]] = [[] for _ in texts]
        for at in range(0, len(order), _BATCH):
            some = order[at : at + _BATCH]
            for number, vector in zip(some, self._run([texts[n] for n in some]), strict=True):
                vectors[number] = vector
        return vectors

    def close(self) -> None:
        """Free the weights."""
        for held in ("_session", "_tokenizer"):
            self.__dict__.pop(held, None)
        trim_memory()

    def _run(self, texts: list[str]) -> list[list[float]]:
        import numpy as np

        found = self._tokenizer.encode_batch(list(map(to_embeddable, texts)))
        ids = np.array([one.ids for one in found], np.int64)
        mask = np.array([one.attention_mask for one in found], np.int64)
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        wanted = {one.name for one in self._session.get_inputs()}
        if other := wanted - given.keys():
            raise _unreadable(self._model_file, f"it wants {', '.join(sorted(other))}, too")
        with TranslateModelErrors(self._model_file):
            hidden = self._session.run(None, {name: given[name] for name in wanted})[0]
        if hidden.ndim == 2:
            summed = hidden
        elif self._first_word:
            summed = hidden[:, 0]
        else:
            summed = (hidden * mask[..., None]).sum(axis=1)
        lengths = np.maximum(np.linalg.norm(summed, axis=1, keepdims=True), 1e-9)
        made: list[list[float]] = (summed / lengths).tolist()
        return made


class TranslateModelErrors:
    """Translate the libraries' errors about an invalid model into one StoreError.

    Those of tokenizers are bare Exceptions, those of onnxruntime have no common base.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, exc: BaseException | None, _trace: object) -> None:
        if kind is Exception or type(exc).__module__.startswith("onnxruntime."):
            raise _unreadable(self._file, exc) from exc


def trim_memory() -> None:
    """Return freed memory to the system.

    glibc keeps about 80 of the 170 MB that a model takes, and more each time, unless it is told to
    trim. Other libraries have no such call.
    """
    import ctypes

    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError, TypeError):
        return


def check_extra() -> None:
    """Check that the packages are installed, without importing them. Raises MissingExtraError."""
    for needed in ("numpy", "onnxruntime", "tokenizers"):
        if importlib.util.find_spec(needed) is None:
            raise MissingExtraError("a local sentence model", "vectors")


def open_onnx(path: Path) -> OnnxEmbedder:
    """Open the model of a folder, or of a file with its tokenizer next to it or above."""
    if path.suffix.lower() == ".gguf":
        raise UserError(f"{path} is a GGUF model, and those are not used for memory", fix=_FIX)
    if path.is_dir():
        files = (path / name for name in _MODEL_FILES)
        file = next((one for one in files if one.is_file()), path / _MODEL_FILES[0])
    else:
        file = path
    folder = file.parent
    if not (folder / "tokenizer.json").is_file() and (folder.parent / "tokenizer.json").is_file():
        folder = folder.parent
    return OnnxEmbedder(
        file,
        folder / "tokenizer.json",
        folder.name,
        _size_in(folder),
        key=_mark(file),
        first_word=_read(folder / "1_Pooling" / "config.json").get("pooling_mode_cls_token")
        is True,
    )


def _size_in(folder: Path) -> int:
    size = _read(folder / "config.json").get("hidden_size")
    return size if isinstance(size, int) and size > 0 else 0


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            told = json.loads(file.read(_MAX_CONFIG_BYTES))
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}


def _mark(file: Path) -> str:
    """Return a short digest of a model file, which tells models of the same name apart."""
    try:
        with file.open("rb") as opened:
            digest = hashlib.sha256(opened.read(_MARK_BYTES))
            digest.update(str(opened.seek(0, 2)).encode())
    except OSError as exc:
        raise UserError(f"{file} cannot be read: {exc.strerror}", fix=_FIX) from exc
    return digest.hexdigest()[:12]


def _unreadable(file: Path, why: object) -> StoreError:
    told = one_line(str(why), 200)
    return StoreError(f"{file} is not a model that can be read: {told}", fix=_FIX)
