"""Row 39, small: a hundred sessions at once. `make scale` runs the full size."""

from pathlib import Path

import pytest

from tests.crash.harness import Launch
from tests.crash.scale import measure_scale

SESSIONS = 100


@pytest.mark.slow
def test_row_39_hundred_concurrent_sessions_get_their_own_answers(
    launch: Launch, tmp_path: Path
) -> None:
    results = measure_scale(launch, tmp_path, SESSIONS, think_ms=200, rest_s=0.0)
    assert results.answered == 4 * SESSIONS
    assert results.doubled == 0 and results.strayed == 0
    assert results.worst_s < 60
