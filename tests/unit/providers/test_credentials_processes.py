"""Several processes record results for one file, and none is lost."""

import asyncio
import json
import multiprocessing
from pathlib import Path

from homarus.config.check import check_config
from homarus.config.paths import Paths
from homarus.core.errors import AuthError, RateLimitError
from homarus.providers.credentials import open_credentials
from homarus.providers.profile_file import FILE
from homarus.testing.clock import START_MS, FakeClock

ROUNDS = 15


def _mark_many(home: Path, own: str) -> None:
    config = check_config({}).config
    assert config
    settings = config

    async def main() -> None:
        credentials = open_credentials(settings, {}, Paths.find({}, home), "main", FakeClock())
        found = {each.profile_id: each for each in credentials.candidates("openai")}
        for _ in range(ROUNDS):
            credentials.record_result(found["all"], AuthError("x"))
            credentials.record_result(found[own], RateLimitError("x"))
            await asyncio.sleep(0)
        credentials.record_result(found[f"good-{own}"])
        await credentials.close()

    asyncio.run(main())


def test_results_of_several_processes_add_up(tmp_path: Path) -> None:
    file = Paths.find({}, tmp_path).agent_dir("main") / FILE
    file.parent.mkdir(parents=True)
    ids = ["all", "a", "b", "c", "good-a", "good-b", "good-c"]
    profiles = {id_: {"type": "api_key", "provider": "openai", "key": id_} for id_ in ids}
    file.write_text(json.dumps({"version": 1, "profiles": profiles}))
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=_mark_many, args=(tmp_path, own)) for own in "abc"]
    for each in processes:
        each.start()
    for each in processes:
        each.join(60)
    assert [each.exitcode for each in processes] == [0, 0, 0]
    stored = json.loads(file.read_text())
    assert stored["profiles"] == profiles
    stats = stored["usageStats"]
    assert stats["all"]["failureCounts"] == {"auth": 3 * ROUNDS}
    for own in "abc":
        assert stats[own]["errorCount"] == ROUNDS
        assert stats[f"good-{own}"] == {"lastUsed": START_MS, "errorCount": 0}
    assert stored["lastGood"]["openai"].startswith("good-")
