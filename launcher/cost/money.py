"""Amounts of money as text."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_HALF_UP, Decimal

Range = tuple[Decimal, Decimal]  # the least and the most


def dollars(usd: Decimal) -> str:
    """Return `$1,234.50`; an amount below a cent is `less than $0.01`."""
    return _shown(usd, ROUND_HALF_UP)


def rate(usd: Decimal) -> str:
    """Return a price per hour with all its digits, at least two: `$0.7364`, `$63.296`, `$3.20`."""
    exact = usd.normalize()
    return f"${usd:,.2f}" if -int(exact.as_tuple().exponent) < 2 else f"${exact:,f}"


def at_most(amounts: Range) -> str:
    """Return `at most $3.00`, `at most $3.00 to $4.20` or `less than $0.01`, rounded up so that it is true."""
    low, high = (_shown(amount, ROUND_CEILING) for amount in amounts)
    if low == high:
        return low if low.startswith("less") else f"at most {low}"
    return f"at most {low} to {high}"


def _shown(usd: Decimal, rounding: str) -> str:
    if 0 < usd < Decimal("0.01"):
        return "less than $0.01"
    return f"${usd.quantize(Decimal('0.01'), rounding):,}"
