"""The limits of the config become numbers, once."""

from typing import Any

import pytest

from homarus.config.sandbox_schema import ContainerConfig
from homarus.tools.sandbox.base import SandboxLimits
from homarus.tools.sandbox.limits import resolve_limits

DEFAULT = SandboxLimits()


@pytest.mark.parametrize(
    ("docker", "expected"),
    [
        ({}, {}),
        ({"memory": "1g"}, {"memory_bytes": 1 << 30}),
        ({"memory": "1m", "memorySwap": "3m"}, {"memory_bytes": 1 << 20, "swap_bytes": 2 << 20}),
        ({"memory": 1048576}, {"memory_bytes": 1 << 20}),
        ({"memory": "1g", "memorySwap": -1}, {"memory_bytes": 1 << 30, "swap_bytes": -1}),
        ({"memory": "1g", "memorySwap": "512m"}, {"memory_bytes": 1 << 30}),
        ({"pidsLimit": 64}, {"pids": 64}),
        ({"pidsLimit": 64, "ulimits": {"nproc": 32}}, {"pids": 32}),
        ({"pidsLimit": 64, "ulimits": {"nproc": "unlimited"}}, {"pids": 64}),
        ({"cpus": 1.5}, {"cpus": 1.5}),
        ({"cpus": 2}, {"cpus": 2.0}),
        ({"ulimits": {"nofile": {"soft": 100, "hard": 200}}}, {"open_files": 100}),
        ({"ulimits": {"nofile": {"hard": 200}}}, {"open_files": 200}),
        ({"ulimits": {"nofile": {}}}, {}),
        ({"ulimits": {"nofile": -1}}, {"open_files": 0}),
        ({"ulimits": {"fsize": "1000:2000"}}, {"file_bytes": 1000}),
        ({"ulimits": {"fsize": 0}}, {"file_bytes": 1}),
        ({"ulimits": {"cpu": 60}}, {"cpu_s": 60}),
    ],
)  # fmt: skip
def test_limits_of_config(docker: dict[str, Any], expected: dict[str, Any]) -> None:
    found = resolve_limits(ContainerConfig.model_validate(docker))
    names = SandboxLimits.__slots__
    changed = {
        name: getattr(found, name)
        for name in names
        if getattr(found, name) != getattr(DEFAULT, name)
    }
    assert changed == expected
