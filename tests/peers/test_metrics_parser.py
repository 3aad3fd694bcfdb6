"""The official parser of Prometheus reads the metrics of a gateway."""

import json
import subprocess
from pathlib import Path

import pytest

from homarus.core.message import ToolCall
from homarus.gateway.metrics import metrics_text
from tests.peers.install import venv
from tests.unit.diagnostics.test_metric_families import parse
from tests.unit.gateway.app_harness import answer, run

pytestmark = pytest.mark.peers

LOCK = Path(__file__).parents[2] / "requirements" / "prometheus.lock"
PARSER = """
import json, sys
from prometheus_client.parser import text_string_to_metric_families
families = text_string_to_metric_families(sys.stdin.read())
print(json.dumps([[f.name, f.type, f.documentation, len(f.samples)] for f in families]))
"""


async def test_official_parser_reads_every_family_with_its_type(tmp_path: Path) -> None:
    python = venv(LOCK)
    odd = ToolCall("c1", 'a"tool\\with\nodd\u2028name', {})
    async with run(tmp_path, answer(odd), answer("done")) as it:
        it.app.diagnostics_loader.start(has_metrics=True)
        await it.send("hello")
        text = await metrics_text(it.gateway)
    command = [str(python), "-c", PARSER]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    families = json.loads(done.stdout)
    ours = parse(text)
    assert {name for name, *_ in families} == {name.removesuffix("_total") for name in ours}
    assert all(kind in {"counter", "gauge", "histogram"} for _, kind, _, _ in families)
    assert all(help_text and count for _, _, help_text, count in families)
    assert sum(count for *_, count in families) == sum(len(series) for series in ours.values())
