"""`python -m tests.fuzz.http_fuzz N [SEED]`: schemathesis on the HTTP API of a real gateway.

Every endpoint is on, a scripted server answers for the models. What schemathesis makes of
`/openapi.json`, some N requests, must get no 5xx, and nothing that the document does not describe.
It runs in an environment of its own. Prints how many requests were made, and the failures.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from tests.peers.gateway import TOKEN, Running, model_server, new_home, running_gateway
from tests.peers.install import venv
from tests.style.rules import ROOT

LOCK = ROOT / "requirements" / "schemathesis.lock"
CHECKS = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance",
    "response_schema_conformance", "unsupported_method", "ignored_auth",
)  # fmt: skip
ENDPOINTS, OWN_ENDPOINTS = ("chatCompletions", "responses"), ("embeddings", "toolsInvoke")
# Names of models that are made up are those of no agent: with the header, they start runs.
BOUNDARIES = ("--phases", "examples,coverage")
PASSES = (
    ("--phases", "fuzzing", "--header", "x-openclaw-agent-id: main"),
    ("--phases", "fuzzing"),
)
TIMEOUT_S = 3 * 3600


@dataclass(frozen=True, slots=True)
class FuzzReport:
    """The answers by status, whether a check failed, and what schemathesis printed last."""

    statuses: Counter[int]
    has_failed: bool
    output: str


@contextmanager
def gateway_with_api(folder: Path) -> Iterator[Running]:
    """Run a gateway with every endpoint on, and a scripted model behind it."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TZ") if name in os.environ}
    with model_server() as model:
        home = new_home(folder, kept, model)
        file = home.state / "openclaw.json"
        config: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        remote = {"baseUrl": f"{model.url}/v1", "apiKey": "fuzz-key-0123456789"}
        defaults = config.setdefault("agents", {}).setdefault("defaults", {})
        defaults["memorySearch"] = {"provider": "openai", "remote": remote}
        home.configure(config | _enable(ENDPOINTS))
        own = json.dumps(_enable(OWN_ENDPOINTS))
        (home.state / "homarus.json").write_text(own, encoding="utf-8")
        with running_gateway(home) as running:
            yield running


def _enable(names: tuple[str, ...]) -> dict[str, Any]:
    return {"gateway": {"http": {"endpoints": {name: {"enabled": True} for name in names}}}}


def fuzz(gateway: Running, requests: int, seed: int, folder: Path) -> FuzzReport:
    """Make so many random requests, chosen by a seed, besides those of every boundary.

    Stops at the first failure.
    """
    document = httpx2.get(
        f"{gateway.page}openapi.json", headers={"Authorization": f"Bearer {TOKEN}"}
    ).json()
    operations = sum(len(methods) for methods in document["paths"].values())
    statuses, output, passes, left = Counter[int](), "", 0, requests
    while left > 0:
        examples = max(10, left // operations)
        given = PASSES[passes % 2] if passes else BOUNDARIES
        status, output, made = _run(gateway, given, examples, seed + passes, folder)
        statuses += made
        left -= made.total() if passes else 0
        passes += 1
        if status or not made:
            return FuzzReport(statuses, has_failed=True, output=output)
    return FuzzReport(statuses, has_failed=False, output=output)


def _run(
    gateway: Running, given: Sequence[str], examples: int, seed: int, folder: Path
) -> tuple[int, str, Counter[int]]:
    """Run schemathesis once; return its status, what it printed, and the answers it got."""
    report = folder / "report.ndjson"
    report.unlink(missing_ok=True)
    command = [
        str(venv(LOCK).with_name("schemathesis")), "run", f"{gateway.page}openapi.json",
        "--header", f"Authorization: Bearer {TOKEN}",
        *given,
        "--max-examples", str(examples),
        "--seed", str(seed),
        "--checks", ",".join(CHECKS),
        "--warnings", "off",
        "--suppress-health-check", "all",
        "--continue-on-failure",
        "--report", "ndjson", "--report-ndjson-path", str(report),
    ]  # fmt: skip
    done = subprocess.run(
        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    text = report.read_text(encoding="utf-8") if report.is_file() else ""
    made = Counter(int(each) for each in re.findall(r'"status_code":\s*(\d+)', text))
    return done.returncode, done.stdout, made


def main() -> None:
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else 5_000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else int.from_bytes(os.urandom(4), "big")
    with tempfile.TemporaryDirectory(prefix="homarus-http-fuzz-") as name:
        folder = Path(name)
        (home := folder / "home").mkdir()
        with gateway_with_api(home) as gateway:
            report = fuzz(gateway, requests, seed, folder)
    print(report.output)
    shown = ", ".join(f"{count} × {status}" for status, count in sorted(report.statuses.items()))
    print(f"{report.statuses.total()} requests from the seed {seed} on: {shown}")
    sys.exit(1 if report.has_failed else 0)


if __name__ == "__main__":
    main()
