"""Cron expressions for tests: chosen ones, and random ones."""

from random import Random

ZONES = (
    "America/New_York",
    "Europe/Berlin",
    "Australia/Lord_Howe",
    "Africa/Casablanca",
    "America/St_Johns",
    "Asia/Kolkata",
)
EXPRESSIONS = (
    "30 2 * * *", "0 2 * * *", "*/15 2 * * *", "*/10 1-3 * * *", "30 1 * * *", "45 1 * * *",
    "15,35 2 * * *", "*/20 * * * *", "0 */2 * * *", "59 23 * * *", "0 0 * * *", "0 0 1 * *",
    "0 9 * * 1-5", "0 9 13 * 5", "0 9 13 * +5", "0 9 ? * 5", "0 9 */2 * 1", "0 0 L * *",
    "0 0 LW * *", "0 0 15W * *", "0 0 1W,31W * *", "0 0 15,L * *", "30 2 * * FRI#2",
    "30 2 * * 0#L", "0 12 * * MON-FRI#1", "0 12 * * 6L", "0 0 31 * *", "0 0 29 2 *",
    "30 2 * mar,oct,nov SUN", "0 0 30 4 7", "5 4 * * SAT-SUN", "0 3 L * +SUN", "*/7 */5 */3 */2 *",
)  # fmt: skip


def random_expression(random: Random, *, plain_days: bool = False) -> str:
    """Return a valid expression of five fields; with `plain_days`, none after the 28th."""
    minute = random_list(random, 0, 59)
    hour = random_list(random, 0, 23)
    last_day = 28 if plain_days else 31
    some_day = random.randint(1, last_day)
    listed = random_list(random, 1, last_day)
    day = random.choice(["*", "*", "?", listed, listed, "L", "LW", "*/2", "*/9", f"{some_day}W"])
    if day == listed and random.random() < 0.3:
        day += ",L"
    month = random.choice(["*", "*", "*", random_list(random, 1, 12), "JAN-MAR", "apr,OCT"])
    names = ["SUN", "mon", "TUE", "WED", "Thu", "FRI", "SAT", *"01234567"]
    name, other = random.choice(names), random.choice(names)
    nth = f"{name}#{random.choice('12345L')}"
    listed = random_list(random, 0, 7)
    weekday = random.choice(
        ["*", "*", "?", listed, "MON-FRI", "FRI-SUN", "*/2", nth, f"{name}L", f"{other},{nth}"]
    )
    if random.random() < 0.15:
        weekday = f"+{weekday}"
    return f"{minute} {hour} {day} {month} {weekday}"


def random_list(random: Random, low: int, high: int) -> str:
    return ",".join(random_item(random, low, high) for _ in range(random.choice([1, 1, 1, 2, 3])))


def random_item(random: Random, low: int, high: int) -> str:
    first, last = sorted((random.randint(low, high), random.randint(low, high)))
    step = random.randint(1, min(high, 7))
    span = f"{first}-{last}"
    return random.choice([str(first), f"{first:02}", span, f"{span}/{step}", f"*/{step}"])
