"""Programs that need no entry: filters that only read their input, in their safe forms.

OpenClaw's set without what can read files or variables (`jq`, `grep`, `sort`). No operands, except
the character sets of `tr`; no option that is not listed here, no abbreviation.
"""

from collections.abc import Collection, Sequence
from typing import Final

from homarus.tools.exec.arg_policy import Place, judge_arguments, program_names
from homarus.tools.exec.executable import Executable

_RULES: Final = {
    "cut": "none -d: -f: -c: -b: -s -z --delimiter: --fields: --characters: --bytes: --complement"
    " --only-delimited --output-delimiter: --zero-terminated",
    "head": "none -n: -c: -q -v -z -# --lines: --bytes: --quiet --silent --verbose"
    " --zero-terminated",
    "tail": "none -n: -c: -q -v -z -# --lines: --bytes: --quiet --silent --verbose"
    " --zero-terminated",
    "tr": "text -d -s -c -C -t --delete --squeeze-repeats --complement --truncate-set1",
    "uniq": "none -c -d -u -i -f: -s: -w: -z --count --repeated --unique --ignore-case"
    " --skip-fields: --skip-chars: --check-chars: --zero-terminated",
    "wc": "none -l -w -c -m -L --lines --words --bytes --chars --max-line-length",
}
SAFE_BINS: Final = frozenset(_RULES)


def is_safe_bin(
    executable: Executable, args: Sequence[str], place: Place, enabled: Collection[str] = SAFE_BINS
) -> bool:
    """Return whether a command is one of the filters, found by its name, in a safe form."""
    name = executable.name
    return (
        executable.is_looked_up
        and name in SAFE_BINS
        and name in enabled
        and name in program_names(executable)
        and not judge_arguments(_RULES[name], args, 0, place)
    )
