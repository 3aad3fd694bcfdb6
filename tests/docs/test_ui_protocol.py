"""The types of the control UI are those of the gateway."""

import subprocess
import sys
from pathlib import Path

from homarus.gateway.methods import METHODS, UNIMPLEMENTED

ROOT = Path(__file__).parents[2]
GENERATED = ROOT / "web" / "src" / "protocol" / "protocol.generated.ts"


def test_generated_protocol_types_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "web/generate_protocol.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_generated_protocol_types_name_every_method() -> None:
    text = GENERATED.read_text(encoding="utf-8")
    assert [name for name in [*METHODS, *UNIMPLEMENTED] if f"'{name}':" not in text] == []
