"""schemathesis on the HTTP API of a real gateway: nothing it makes up gets a 5xx."""

from pathlib import Path

import pytest

from tests.fuzz.http_fuzz import fuzz, gateway_with_api

pytestmark = [pytest.mark.peers, pytest.mark.timeout(1800)]  # the first run installs it

REQUESTS, SEED = 500, 1


def test_http_api_answers_generated_requests_as_described(tmp_path: Path) -> None:
    (home := tmp_path / "home").mkdir()
    with gateway_with_api(home) as gateway:
        report = fuzz(gateway, REQUESTS, SEED, tmp_path)
        assert not report.has_failed, report.output
        assert report.statuses.total() >= REQUESTS
        assert report.statuses[200] >= 20 and report.statuses[400] >= 20, report.statuses
        assert not [status for status in report.statuses if status >= 500], report.statuses
        assert "Traceback" not in gateway.log
