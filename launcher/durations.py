"""Durations as text."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """Return `45 s`, `3 min 20 s`, `1 h 5 min` or `2 d 3 h`: the two largest units."""
    left = round(seconds)
    parts: list[str] = []
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count or (unit == "s" and not parts):
            parts.append(f"{count} {unit}")
        elif parts:
            break
    return " ".join(parts[:2])
