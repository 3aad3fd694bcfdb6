"""A sentence model on this machine: the folder `local.modelPath`, or MiniLM once it was pulled."""

from pathlib import Path
from typing import Final

from homarus.core.errors import UserError
from homarus.memory.embed import minilm
from homarus.memory.embed.backends import AutoSelection, AvailableEmbedder, EmbedderRequest
from homarus.memory.embed.onnx import check_extra, open_onnx
from homarus.memory.spec import MemorySpec

AUTO: Final = AutoSelection(order=10, takes_settings=True)


def create(request: EmbedderRequest) -> AvailableEmbedder:
    """Open the configured model, else MiniLM."""
    spec = request.spec
    if path := spec.search.local.model_path:
        return AvailableEmbedder(open_onnx(spec.file(path)), f"local.modelPath is {path}")
    folder = minilm.find(weights_cache(spec)) or minilm.find(spec.models_cache)
    if folder is None:
        raise UserError(
            "there is no sentence model on this machine", fix="run `homarus models pull minilm`"
        )
    check_extra()
    return AvailableEmbedder(minilm.open_minilm(folder), f"{minilm.NAME} is on this machine")


def weights_cache(spec: MemorySpec) -> Path:
    """Return the folder of downloaded weights."""
    configured = spec.search.local.model_cache_dir
    return spec.file(configured) if configured else spec.models_cache
