"""Durations and sizes as they are written everywhere: in a spec, an option or an answer."""

from __future__ import annotations

import re

SECONDS = {"w": 604_800, "d": 86_400, "h": 3600, "m": 60, "s": 1}
DURATION = "(?=[0-9])" + "".join(f"(?:([0-9]{{1,9}}){unit})?" for unit in SECONDS)
A_DURATION = "a time such as 90s, 10m, 1h30m, 7d or 2w"
SIZE = r"([0-9]{1,15}(?:\.[0-9]{1,6})?) ?(?:([kKmMgGtT])([iI]?)[bB])?"


def seconds_of(text: str) -> int | None:
    """Return the seconds of `90s`, `1h30m` or `2w`; None for any other text."""
    found = re.fullmatch(DURATION, text.strip())
    return found and sum(int(count or 0) * unit for count, unit in zip(found.groups(), SECONDS.values(), strict=True))


def bytes_of(text: str) -> int | None:
    """Return the bytes of `4096`, `256MB`, `1.5 GiB` or `2tb`; None for any other text."""
    if not (found := re.fullmatch(SIZE, text.strip())):
        return None
    step = 1024.0 if found[3] else 1000.0
    return round(float(found[1]) * step ** (" kmgt".index((found[2] or " ").lower())))
