"""The program leaves out modules that libraries import and nothing uses."""

import subprocess
import sys

PROGRAM = """
import sys
sys.argv = ["homarus", "config", "file"]
from homarus.__main__ import main
try:
    main()
except SystemExit:
    pass
import homarus.config.schema, websockets.http11, uvicorn
from pathlib import Path
source = Path(websockets.__file__).with_name("version.py").read_text()
assert f'"{websockets.__version__}"' in source
heavy = ("importlib.metadata", "importlib.resources", "multiprocessing", "zipfile")
sys.stdout.write("loaded " + " ".join(name for name in heavy if name in sys.modules))
"""


def test_program_does_not_load_unused_modules() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines()[-1] == "loaded "
