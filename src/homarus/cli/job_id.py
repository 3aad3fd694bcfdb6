"""The job that a person names by the start of its id."""

from collections.abc import Mapping, Sequence

from homarus.core.errors import UnknownNameError, UserError
from homarus.core.message import Json
from homarus.core.text import closest_names, one_line


def find_job_id(word: str, ids: Sequence[str], *, may_be_gone: bool = False) -> str:
    """Return the one id that is this word or starts with it. Raises UserError.

    With `may_be_gone` an unknown word is an id too: the runs of a job remain after its removal.
    """
    if word in ids:
        return word
    found = [one for one in ids if word and one.startswith(word)]
    if len(found) > 1:
        raise UserError(
            f"{len(found)} jobs start with {one_line(word, 40)!r}", fix="write more of the id"
        )
    if found:
        return found[0]
    if may_be_gone and word:
        return word
    raise _unknown_job(word, ids)


def check_runs(word: str, job_id: str, ids: Sequence[str], found: Mapping[str, Json]) -> None:
    """Raise UnknownNameError for an id that is of no job, and of no run of a removed one."""
    if job_id not in ids and not found.get("entries"):
        raise _unknown_job(word, ids)


def _unknown_job(word: str, ids: Sequence[str]) -> UnknownNameError:
    starts = {one[: len(word)]: one for one in ids}  # the word may be the start of an id
    nearest = tuple(starts[one] for one in closest_names(word, starts))
    hint = f"did you mean {' or '.join(nearest)}? " if nearest else ""
    fix = f"{hint}homarus cron list --all shows the ids"
    return UnknownNameError("job", one_line(word, 80), nearest, fix=fix)
