"""What the page adds to the look that all pages share: the colours of lines, marks and kinds of alerts."""

from __future__ import annotations

from fleetgauge.pages.style import SERIES_DARK, SERIES_LIGHT, SERIES_RULES, page_style

_LIGHT = (
    "--allocated:#1d4ed8;--reserved:#9333ea;--used:#0f766e;"
    "--critical:#dc2626;--error:#9f1239;--warning:#d97706;--peak:#475569"
)
_DARK = (
    "--allocated:#7aa2ff;--reserved:#d0a2ff;--used:#4fd1c5;"
    "--critical:#ff6b6b;--error:#ff8fb0;--warning:#fbbf24;--peak:#cbd5e1"
)
_RULES = """
.completed{color:var(--good)}.interrupted{color:var(--bad)}.running{color:var(--busy)}.incomplete{color:var(--odd)}
.short{overflow-wrap:break-word}
.kind{font-weight:600;white-space:nowrap}
.kind span::before{content:"";display:inline-block;width:.55rem;height:.55rem;margin-right:.4rem}
.kind span::before{background:var(--peak);border-radius:50%}
.kind.critical span::before{background:var(--critical);border-radius:0}
.kind.error span::before{background:var(--error);border-radius:0}
.kind.warning span::before{background:var(--warning)}
.used{stroke:var(--used);stroke-width:6px;opacity:.45}.plot .fill-used{fill:var(--used)}
.reserved{stroke:var(--reserved);stroke-width:3px;stroke-dasharray:6 6}
.allocated{stroke:var(--allocated);stroke-width:1.5px}
.legend .limit{stroke:var(--limit);stroke-width:1.5px;stroke-dasharray:7 4}
.mark{stroke-width:8px}
.mark.peak{stroke:var(--peak);stroke-width:5px}
.mark.warning{stroke:var(--warning)}
.plot .mark.critical,.legend .mark.critical{stroke:var(--critical);stroke-linecap:square;stroke-width:9px}
.plot .mark.error,.legend .mark.error{stroke:var(--error);stroke-linecap:square;stroke-width:9px}
"""

STYLE = page_style(f"{_LIGHT};{SERIES_LIGHT}", f"{_DARK};{SERIES_DARK}", SERIES_RULES + _RULES)
