"""Time zones by name, and machines without data."""

import sys
import zoneinfo
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from homarus.config import timezone
from homarus.schedule import zones
from homarus.schedule.zones import UnknownTimeZoneError, get_zone, local_zone


@pytest.fixture(autouse=True)
def _no_caches() -> Iterator[None]:
    def clear() -> None:
        for cached in (timezone.load_zone, timezone._machine_zone):
            cached.cache_clear()
        zones._zone_names.cache_clear()
        zones._zone_from_file.cache_clear()
        zoneinfo.ZoneInfo.clear_cache()

    clear()
    yield
    clear()


@pytest.fixture
def _no_data(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine without time-zone data, neither of the system nor of a package."""
    before = zoneinfo.TZPATH
    monkeypatch.setitem(sys.modules, "tzdata", None)
    zoneinfo.reset_tzpath(())
    yield
    zoneinfo.reset_tzpath(before)


def test_zone_name_is_found_in_any_case() -> None:
    assert get_zone("Europe/Berlin") == get_zone(" europe/BERLIN ")
    assert str(get_zone("etc/gmt+5")) == "Etc/GMT+5"
    assert get_zone("utc") is UTC


@pytest.mark.parametrize(
    "name", ["Nope/Zone", "", "UTC+1", "+02:00", "../etc/passwd", "/etc/localtime", "a" * 10_000]
)
def test_zone_that_is_unknown_is_refused(name: str) -> None:
    with pytest.raises(UnknownTimeZoneError, match="is unknown") as caught:
        get_zone(name)
    assert caught.value.fix and len(caught.value.message) < 200


def test_zone_that_is_misspelled_names_the_nearest() -> None:
    with pytest.raises(UnknownTimeZoneError) as caught:
        get_zone("Europe/Berln")
    assert "Europe/Berlin" in caught.value.fix


@pytest.mark.usefixtures("_no_data")
def test_zone_without_data_on_the_machine_says_so() -> None:
    with pytest.raises(UnknownTimeZoneError, match="no time-zone data") as caught:
        get_zone("Europe/Berlin")
    assert "tzdata" in caught.value.fix
    assert get_zone("UTC") is UTC


def test_zone_of_the_machine_follows_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    assert str(local_zone()) == "Asia/Kolkata"


def test_zone_of_a_machine_without_name_or_file_is_utc(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("TZ", raising=False)
    for name in ("_LINK", "_NAME"):
        monkeypatch.setattr(timezone, name, tmp_path / "none")
    monkeypatch.setattr(zones, "_LOCAL_FILE", tmp_path / "none")
    assert local_zone() is UTC


def test_zone_of_a_machine_with_a_file_is_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("TZ", raising=False)
    for name in ("_LINK", "_NAME"):
        monkeypatch.setattr(timezone, name, tmp_path / "none")
    file = tmp_path / "localtime"
    paths = (Path(folder) / "Asia" / "Kolkata" for folder in zoneinfo.TZPATH)
    file.write_bytes(next(path for path in paths if path.is_file()).read_bytes())
    monkeypatch.setattr(zones, "_LOCAL_FILE", file)
    moment = datetime(2026, 2, 17, tzinfo=local_zone())
    assert moment.utcoffset() == timedelta(hours=5, minutes=30)
