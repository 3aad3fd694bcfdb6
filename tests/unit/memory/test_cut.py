from hypothesis import example, given
from hypothesis import strategies as st

from homarus.memory.chunking import NoteChunk, cut_chunks, cut_lines, speaker_of, whole_lines

NOTES = st.text(st.sampled_from(list("ab .!?\n\r\t-#:é東京😀")), max_size=400)


@given(NOTES, st.integers(8, 60))
@example("- Ada: " + "word. " * 500, 60)
@example("x" * 300 + "  \n" + " " * 90 + "y", 20)
def test_cut_lines_piece_positions_match_text(text: str, most: int) -> None:
    lines = text.split("\n")
    for piece in cut_lines(text, most):
        assert lines[piece.line - 1][piece.start :].startswith(piece.text)
        assert piece.text.strip()


@given(NOTES, st.integers(8, 60))
def test_cut_lines_keeps_every_word(text: str, most: int) -> None:
    kept = "".join("".join(piece.text.split()) for piece in cut_lines(text, most))
    assert kept == "".join(text.split())


@given(NOTES)
def test_cut_chunks_joined_equal_note(text: str) -> None:
    lines = text.split("\n")
    chunks = cut_chunks(text, tokens=20, overlap_tokens=5)
    covered = {number for chunk in chunks for number in range(chunk.start_line, chunk.end_line + 1)}
    assert covered == set(range(1, len(lines) + 1))
    for chunk in chunks:
        whole = "\n".join(lines[chunk.start_line - 1 : chunk.end_line])
        assert chunk.text in whole


def test_speaker_of_common_formats_returns_name() -> None:
    assert speaker_of("- Ada: hello") == "ada"
    assert speaker_of("Ada Lovelace: hello") == "ada lovelace"
    assert speaker_of("> **Ada:** hello") == "ada"
    assert speaker_of("1. [10:30] Ada: hello") == "ada"
    assert speaker_of("@ada: hello") == "ada"


def test_speaker_of_times_links_and_sentences_returns_none() -> None:
    assert speaker_of("- 10:30 met Ada") == ""
    assert speaker_of("see https://example.org/a: b") == ""
    assert speaker_of("what I have learnt over all these years: be kind") == ""
    assert speaker_of("plain words") == ""


def test_cut_lines_long_paragraph_is_cut_after_sentence() -> None:
    text = "First sentence here. " * 4 + "Last one."
    pieces = list(cut_lines(text, 50))
    assert [piece.line for piece in pieces] == [1] * len(pieces)
    assert all(piece.text.rstrip().endswith(".") and len(piece.text) <= 50 for piece in pieces)


def test_whole_lines_line_longer_than_chunk_is_one_line() -> None:
    long = "".join(str(number) for number in range(1000))
    for chunk in cut_chunks(f"before\n\n{long}\nafter\n"):
        whole = whole_lines(chunk)
        assert whole is not None
        lines = whole.text.split("\n")
        assert len(lines) == chunk.end_line - chunk.start_line + 1
        assert all(line in ("before", "", "after") or line in long for line in lines)


def test_whole_lines_line_as_long_as_chunk_is_not_merged() -> None:
    assert whole_lines(NoteChunk(1, 2, f"{'x' * 1600}\nshort")) == NoteChunk(
        1, 2, f"{'x' * 1600}\nshort"
    )
    assert whole_lines(NoteChunk(1, 2, f"{'x' * 1600}\n{'y' * 1600}\nshort")) is None
