"""A sentence model in a local folder, run by onnxruntime: `model.onnx` and `tokenizer.json`.

Made for MiniLM and its like: the mean of the last layer over the words of a text.
"""

import importlib.util
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from homarus.core.errors import MissingExtra, UserError
from homarus.memory.embed.base import Model

_BATCH = 4  # more at once is slower here: short texts are filled up to the longest
MAX_TOKENS: Final = 256


class OnnxModel:
    """One thread, no arena: half the memory, and no slower for a line at a time."""

    def __init__(self, model_file: Path, tokenizer_file: Path, name: str, dims: int = 384) -> None:
        for needed in ("numpy", "onnxruntime", "tokenizers"):
            if importlib.util.find_spec(needed) is None:
                raise MissingExtra("a local sentence model", "vectors")
        for file in (model_file, tokenizer_file):
            if not file.is_file():
                raise UserError(f"there is no {file}", fix="name a folder with an ONNX model")
        self._model_file = model_file
        self._tokenizer_file = tokenizer_file
        self._model = Model("local", name, dims)

    @property
    def model(self) -> Model:
        return self._model

    @cached_property
    def _session(self) -> Any:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.enable_cpu_mem_arena = False
        options.enable_mem_pattern = False
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        providers = ["CPUExecutionProvider"]
        return onnxruntime.InferenceSession(str(self._model_file), options, providers=providers)

    @cached_property
    def _tokenizer(self) -> Any:
        from tokenizers import Tokenizer

        made = Tokenizer.from_file(str(self._tokenizer_file))
        made.enable_truncation(MAX_TOKENS)
        made.enable_padding(pad_id=0, pad_token="[PAD]")  # noqa: S106 - a token of the tokenizer
        return made

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Texts of like length together, so that little is filled up."""
        order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
        vectors: list[list[float]] = [[] for _ in texts]
        for at in range(0, len(order), _BATCH):
            some = order[at : at + _BATCH]
            for number, vector in zip(some, self._run([texts[n] for n in some]), strict=True):
                vectors[number] = vector
        return vectors

    def _run(self, texts: list[str]) -> list[list[float]]:
        import numpy as np

        found = self._tokenizer.encode_batch(texts)
        ids = np.array([one.ids for one in found], np.int64)
        mask = np.array([one.attention_mask for one in found], np.int64)
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        wanted = {one.name for one in self._session.get_inputs()}
        hidden = self._session.run(None, {name: given[name] for name in given if name in wanted})[0]
        summed = (hidden * mask[..., None]).sum(axis=1)
        lengths = np.maximum(np.linalg.norm(summed, axis=1, keepdims=True), 1e-9)
        made: list[list[float]] = (summed / lengths).tolist()
        return made
