"""`python -m tests.fuzz TARGET [LIBFUZZER OPTION…]`: atheris on one of the targets.

It stops at the first input that violates an invariant, takes more than five seconds or half a
gigabyte of memory, and saves it in a file. Without options it runs until it is interrupted;
`-runs=N` and `-max_total_time=S` end it sooner.
"""

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["homarus"], enable_loader_override=False):
    from tests.fuzz.targets import TARGETS, WORDS

LIMITS = ("-timeout=5", "-rss_limit_mb=512", "-max_len=4096", "-print_final_stats=1")


def main() -> None:
    if sys.argv[1:2] and sys.argv[1] in TARGETS:
        target, seeds = TARGETS[sys.argv[1]]
    else:
        sys.exit(f"{__doc__}\ntargets: {', '.join(TARGETS)}")
    folder = Path(tempfile.mkdtemp(prefix="homarus-fuzz-"))
    corpus, words = folder / "corpus", folder / "words"
    corpus.mkdir()
    for number, seed in enumerate(seeds()):
        (corpus / f"{number:04}").write_bytes(seed)
    lines = ['"' + word.replace('"', '\\"') + '"\n' for word in WORDS[sys.argv[1]]]
    words.write_text("".join(lines), encoding="utf-8")
    kept = f"-artifact_prefix={folder}/"
    options = [sys.argv[0], *LIMITS, kept, f"-dict={words}", *sys.argv[2:], str(corpus)]
    atheris.Setup(options, target)
    atheris.Fuzz()  # ends the process


if __name__ == "__main__":
    main()
