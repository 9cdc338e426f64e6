"""The look that our pages share: light, dark and print, from a phone up."""

from __future__ import annotations

from fleetgauge.pages.charts import CHART_STYLE

_LIGHT = (
    "--page:#f4f6f9;--card:#fff;--plot:#fff;--text:#111827;--muted:#4b5563;--edge:#dde3ea;--link:#1d4ed8;"
    "--limit:#64748b;--good:#166534;--bad:#b91c1c;--busy:#1d4ed8;--odd:#92400e;--note:#fff7e6;"
)
_DARK = (
    "--page:#0b1120;--card:#131c2f;--plot:#0f172a;--text:#e5e9f0;--muted:#a8b3c4;--edge:#2a3650;--link:#93b4ff;"
    "--limit:#94a3b8;--good:#86efac;--bad:#fca5a5;--busy:#93b4ff;--odd:#fcd34d;--note:#2a2413;"
)
MAX_SERIES = 6  # series of one chart: as many as can be told apart
SERIES_LIGHT = "--s1:#1d4ed8;--s2:#c2410c;--s3:#0f766e;--s4:#9333ea;--s5:#be185d;--s6:#4d7c0f"
SERIES_DARK = "--s1:#7aa2ff;--s2:#fdba74;--s3:#4fd1c5;--s4:#d0a2ff;--s5:#f9a8d4;--s6:#bef264"
SERIES_RULES = (
    "".join(
        f".s{number}{{stroke:var(--s{number});stroke-width:1.75px}}"
        f".plot .fill-s{number}{{fill:var(--s{number});stroke:var(--s{number})}}\n"
        for number in range(1, MAX_SERIES + 1)
    )
    + ".s4,.s5,.s6{stroke-dasharray:6 4}\n"
)
_BASE = """
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--text);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:68rem;margin:0 auto;padding:1.25rem 1rem 3rem}
h1{font-size:1.5rem;line-height:1.2;margin:0 0 .25rem;overflow-wrap:anywhere}
h2{font-size:1.125rem;line-height:1.3;margin:0;overflow-wrap:anywhere}
h3{font-size:.9375rem;margin:1.5rem 0 .25rem}
p{margin:.25rem 0;color:var(--muted);font-size:.875rem;overflow-wrap:anywhere}
a{color:var(--link)}
section,.note{background:var(--card);border:1px solid var(--edge);border-radius:10px}
section,.note{padding:1rem;margin-top:1rem}
.note{background:var(--note);padding:.5rem 1rem}
.note p{color:var(--text)}
.head{display:flex;flex-wrap:wrap;gap:.25rem .75rem;align-items:baseline}
.status{font-size:.8125rem;font-weight:600;border:1px solid currentColor;border-radius:99px;padding:0 .6rem}
.status{overflow-wrap:anywhere;min-width:0}
.cards{display:grid;grid-template-columns:repeat(6,minmax(0,1fr));gap:.6rem;margin-top:.9rem}
.card{border:1px solid var(--edge);border-radius:8px;padding:.55rem .75rem;min-width:0}
.card dt{font-size:.8125rem;color:var(--muted)}
.card dd{margin:0;font-size:1.15rem;font-weight:650;line-height:1.35;font-variant-numeric:tabular-nums}
.card small{display:block;font-size:.75rem;font-weight:400;color:var(--muted);overflow-wrap:anywhere}
dl{margin:0}
table{width:100%;border-collapse:collapse;font-size:.8125rem;margin-top:.5rem;font-variant-numeric:tabular-nums}
th,td{text-align:left;vertical-align:top;padding:.4rem .75rem .4rem 0}
th,td{border-bottom:1px solid var(--edge);overflow-wrap:anywhere}
th{color:var(--muted);font-weight:600;overflow-wrap:normal}
td.number{white-space:nowrap}
"""
_NARROW = """
@media (max-width:60rem){.cards{grid-template-columns:repeat(3,minmax(0,1fr))}}
@media (max-width:40rem){
main{padding:.9rem .6rem 2rem}section{padding:.75rem}
.plot{height:13rem}
.cards{grid-template-columns:repeat(2,minmax(0,1fr))}
thead{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
table,tbody,td{display:block}
tr{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:.3rem .75rem}
tr{border-bottom:1px solid var(--edge);padding:.55rem 0}
td{border:0;padding:0;line-height:1.35}
td.wide{grid-column:1/-1}
td::before{content:attr(data-label);display:block;color:var(--muted);font-size:.75rem;font-weight:400}
td.number{white-space:normal}
}
"""
_PRINT = """
body{font-size:11pt}main{max-width:none;padding:0}
section{border:0;border-top:1px solid var(--edge);border-radius:0;padding:.5rem 0}
.cards{grid-template-columns:repeat(3,minmax(0,1fr))}.cards,.chart,tr{break-inside:avoid}h2,h3{break-after:avoid}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}
"""


def page_style(light: str, dark: str, rules: str) -> str:
    """The style of a page that adds colours, as custom properties in light and in dark, and rules of its own.

    The rules stand before those for narrow windows and for paper, which so have the last word.
    """
    return (
        f":root{{color-scheme:light dark;{_LIGHT}{light}}}"
        f"@media (prefers-color-scheme:dark){{:root{{{_DARK}{dark}}}}}"
        f"{_BASE}{CHART_STYLE}{rules}{_NARROW}"
        f"@media print{{:root{{{_LIGHT}{light};--page:#fff;--note:#fff}}{_PRINT}}}"
    )
