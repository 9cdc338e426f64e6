"""Values as a person reads them: as many digits as mean something, and a unit of a handy size.

What a program reads (`--json`, `--csv`) is exact, and not made here.
"""

from __future__ import annotations

import re

_SYMBOLS = {"percent": "%", "hour": "h", "dollar": "$", "degree celsius": "°C", "watt": "W", "hertz": "Hz"}
_SYMBOLS |= {"megahertz": "MHz", "gigabyte": "GB"}
_BYTES = tuple((1024.0**power, unit) for power, unit in enumerate(("B", "KiB", "MiB", "GiB", "TiB", "PiB")))
# Durations change their unit at two of the next: 90 min is read faster than 1.5 h.
_SECONDS = ((1e-6, "µs"), (1e-3, "ms"), (1.0, "s"), (60.0, "min"), (3600.0, "h"), (86400.0, "d"))
_SCALED = {"byte": (1.0, _BYTES, 1.0), "gibibyte": (2.0**30, _BYTES, 1.0)}
_SCALED |= {"second": (1.0, _SECONDS, 2.0), "millisecond": (1e-3, _SECONDS, 2.0)}
_THOUSANDS = ((1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T"))
_RATE = re.compile(r"(?:_per_(?:s|second)|\bsps)$|(_per_hour)$")


def figure(value: float, unit: str, metric: str = "") -> tuple[str, str]:
    """A value of a metric and what it is counted in; the unit as declared where it was not scaled."""
    if unit in _SCALED:
        size, units, factor = _SCALED[unit]
        return _scaled(value * size, units, factor)
    symbol = _SYMBOLS.get(unit, unit)
    if rate := _RATE.search(metric):
        text, thousands = _scaled(value, _THOUSANDS, 10.0)
        return text, f"{' '.join(filter(None, (thousands, symbol)))}/{'h' if rate[1] else 's'}"
    return digits(value), symbol


def digits(value: float) -> str:
    """A number with thousands apart; whole ones are exact, others have the digits that mean something.

    What is not whole does not look so: a disk that is 99.96 % full has room.
    """
    magnitude = abs(value)
    if magnitude < 1e15 and value == int(value):
        return f"{int(value):,}"
    if not 1 <= magnitude < 1e15:
        return f"{value:.3g}"
    for decimals in range(1 if magnitude >= 10 else 2, 5):
        text = f"{value:,.{decimals}f}".rstrip("0").rstrip(".")
        if "." in text:
            break
    return text


def _scaled(value: float, units: tuple[tuple[float, str], ...], factor: float) -> tuple[str, str]:
    """In the largest unit of which there is enough; nothing at all is counted in the plain one."""
    plain = next(one for one in units if one[0] == 1)
    fits = [one for one in units if abs(value) >= one[0] * (factor if one[0] > 1 else 1)]
    size, unit = (fits or units[:1])[-1] if value else plain
    return digits(value / size), unit
