"""What the page of a dry run adds to the look that all pages share: charts in columns, colours of series."""

from __future__ import annotations

from fleetgauge.pages.style import SERIES_DARK, SERIES_LIGHT, SERIES_RULES, page_style

_RULES = f"""
{SERIES_RULES}main section{{background:none;border:0;padding:0;margin-top:2rem}}
nav{{display:flex;flex-wrap:wrap;gap:.25rem 1rem;font-size:.875rem;margin-top:.75rem}}
nav a{{overflow-wrap:anywhere}}
.ok{{color:var(--good)}}.partial,.failed{{color:var(--bad)}}.empty,.skipped{{color:var(--odd)}}
.charts{{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:.9rem;margin-top:.6rem}}
.metric{{background:var(--card);border:1px solid var(--edge);border-radius:10px}}
.metric{{padding:.8rem .9rem;min-width:0;display:flex;flex-direction:column}}
.card{{background:var(--card)}}
.metric.several{{grid-column:1/-1}}
.metric h4{{font-size:.9375rem;line-height:1.35;margin:0;overflow-wrap:anywhere}}
.metric .plot{{height:9.5rem}}
.metric.several .plot{{height:13rem}}
.metric .chart{{margin-top:.7rem}}
.said{{margin-top:.5rem}}
.unit{{color:var(--muted);font-size:.8125rem;overflow-wrap:anywhere;min-width:0}}
.stats{{display:flex;flex-wrap:wrap;gap:.35rem .5rem;margin-top:.4rem}}
.stats div{{min-width:3rem}}
.stats dt{{font-size:.75rem;color:var(--muted)}}
.stats dd{{margin:0;font-size:.8125rem;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}}
.name{{font-size:.8125rem;overflow-wrap:anywhere}}
p.name{{color:var(--text);margin:.6rem 0 0}}
p.name+.stats{{margin-top:.1rem}}
.name svg{{width:1.6rem;height:.8rem;margin-right:.5rem;overflow:visible;vertical-align:middle}}
.name path{{fill:none}}
td.name::before{{display:none}}
@media (max-width:52rem){{.charts{{grid-template-columns:minmax(0,1fr)}}}}
@media (max-width:40rem){{
.metric tr,.stats{{grid-template-columns:repeat(3,minmax(0,1fr))}}
.stats{{display:grid}}
}}
@media (min-width:96rem){{main{{max-width:94rem}}.charts{{grid-template-columns:repeat(3,minmax(0,1fr))}}}}
@media print{{.metric{{break-inside:avoid}}.charts{{grid-template-columns:repeat(2,minmax(0,1fr))}}}}
"""

STYLE = page_style(SERIES_LIGHT, SERIES_DARK, _RULES)
