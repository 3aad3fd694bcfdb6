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
    place = request.place
    if path := place.search.local.model_path:
        return AvailableEmbedder(open_onnx(place.file(path)), f"local.modelPath is {path}")
    folder = minilm.find(weights_cache(place)) or minilm.find(place.models_cache)
    if folder is None:
        raise UserError(
            "there is no sentence model on this machine", fix="run `homarus models pull minilm`"
        )
    check_extra()
    return AvailableEmbedder(minilm.open_minilm(folder), f"{minilm.NAME} is on this machine")


def weights_cache(place: MemorySpec) -> Path:
    """Return the folder of downloaded weights."""
    configured = place.search.local.model_cache_dir
    return place.file(configured) if configured else place.models_cache
