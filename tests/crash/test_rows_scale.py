"""Row 39, small: a hundred sessions at once. `make scale` runs the full size."""

from pathlib import Path

from tests.crash.harness import Launch
from tests.crash.scale import play

SESSIONS = 100


def test_row_39_hundred_concurrent_sessions_get_their_own_answers(
    launch: Launch, tmp_path: Path
) -> None:
    found = play(launch, tmp_path, SESSIONS, think_ms=200, rest_s=0.0)
    assert found.answered == 4 * SESSIONS
    assert found.doubled == 0 and found.strayed == 0
    assert found.worst_s < 60
