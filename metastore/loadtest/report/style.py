"""The style sheet of a report: light or dark like the reader's system, one column on a narrow screen."""

from __future__ import annotations

from typing import Final

__all__ = ["STYLE"]

STYLE: Final = """
:root {
  color-scheme: light dark;
  --page: #f4f5f8; --card: #ffffff; --text: #1b2130; --soft: #5c6579; --line: #dfe3ec; --track: #eceff5;
  --work: #3a6fe0; --conflict: #d9541e; --second: #178a7d; --mark: #1b2130;
  --good: #1d7f45; --good-back: #e4f5ea; --bad: #c02b2b; --bad-back: #fdeaea; --unsure: #8a6100;
    --unsure-back: #fdf3dc;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #12151c; --card: #1b202b; --text: #e7eaf2; --soft: #9aa4b8; --line: #2e3543; --track: #272e3b;
    --work: #7ba4ff; --conflict: #ff8a55; --second: #4fd0bf; --mark: #e7eaf2;
    --good: #6fdc98; --good-back: #16301f; --bad: #ff8f8f; --bad-back: #3a1b1e; --unsure: #f0c464;
      --unsure-back: #352a12;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif;
  overflow-wrap: anywhere; font-variant-numeric: tabular-nums;
}
main { max-width: 1240px; margin: 0 auto; padding: 28px 20px 48px; }
h1 { font-size: 26px; line-height: 1.25; margin: 0; letter-spacing: -0.01em; }
h2 { font-size: 19px; margin: 34px 0 12px; }
h3 { font-size: 15px; margin: 0 0 10px; }
.facts { color: var(--soft); margin: 6px 0 18px; }
.facts span + span::before { content: " · "; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 16px 18px;
  min-width: 0; }
.verdict { border-left: 6px solid; margin-bottom: 16px; }
.verdict strong { font-size: 17px; }
.verdict p { margin: 2px 0 0; color: var(--soft); }
.verdict.good { border-left-color: var(--good); background: var(--good-back); }
.verdict.good strong { color: var(--good); }
.verdict.bad { border-left-color: var(--bad); background: var(--bad-back); }
.verdict.bad strong { color: var(--bad); }
.verdict.unsure { border-left-color: var(--unsure); background: var(--unsure-back); }
.verdict.unsure strong { color: var(--unsure); }
.finding { margin-top: 12px; border-top: 1px solid var(--line); padding-top: 10px; }
.finding ol { margin: 6px 0 0; padding: 10px 10px 10px 38px; background: var(--card); border-radius: 8px; }
.finding li { font: 13px/1.5 ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
.rule { font: 600 12px/1 ui-monospace, Menlo, Consolas, monospace; padding: 3px 7px; border-radius: 6px;
  color: var(--card);
  background: var(--bad); margin-right: 8px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 240px), 1fr)); gap: 12px; }
.tile { padding: 13px 16px; }
.tile .name { color: var(--soft); font-size: 13px; }
.tile .value { font-size: 25px; font-weight: 650; line-height: 1.25; letter-spacing: -0.01em; }
.tile .value small { font-size: 14px; font-weight: 500; color: var(--soft); }
.tile .more { color: var(--soft); font-size: 13px; }
.tile.warn .value { color: var(--conflict); }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 420px), 1fr)); gap: 14px;
  margin-top: 14px; }
svg.chart { display: block; width: 100%; height: auto; }
svg text { font-size: 12.5px; fill: var(--soft); } svg .mark-label { fill: var(--text); font-weight: 600; }
svg .legend { fill: var(--text); }
.key.work { fill: var(--work); } .key.second { fill: var(--second); } .key.conflict { fill: var(--conflict); }
.grid { stroke: var(--line); stroke-width: 1; } .mark { stroke: var(--mark); stroke-width: 1.3;
  stroke-dasharray: 4 3; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; } .area { opacity: 0.13; }
.bar.work, .dot.work, .area.work { fill: var(--work); } .line.work { stroke: var(--work); }
.bar.conflict, .dot.conflict, .area.conflict { fill: var(--conflict); } .line.conflict { stroke: var(--conflict); }
.bar.second, .dot.second, .area.second { fill: var(--second); } .line.second { stroke: var(--second); }
.bar:hover { opacity: 0.72; } .dot:hover { stroke: var(--text); stroke-width: 2; }
.scroll { overflow-x: auto; overflow-wrap: normal; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th { text-align: left; color: var(--soft); font-weight: 600; font-size: 13px; white-space: nowrap; }
th, td { padding: 6px 10px; border-bottom: 1px solid var(--line); vertical-align: top; }
tr:last-child td { border-bottom: 0; } tr.sum td { font-weight: 650; }
.n { text-align: right; white-space: nowrap; } .soft { color: var(--soft); font-size: 13px; font-weight: 400; }
td.outcomes { min-width: 190px; } td.causes { min-width: 130px; } .wide { margin-top: 14px; }
th.group { text-align: center; } thead tr:not(:last-child) th { border-bottom: 0; padding-bottom: 0; }
.stack { display: flex; height: 8px; border-radius: 4px; overflow: hidden; background: var(--track);
  margin: 6px 0 3px; }
.stack i { flex: 0 0 auto; } .applied { background: var(--work); } .read { background: var(--second); }
.nothing { background: var(--soft); } .failed { background: #b48a1e; } .conflicted { background: var(--conflict); }
.unknown { background: #9b4bd1; } .open { background: var(--bad); }
.ranking { display: grid; gap: 9px; margin: 0; padding: 0; list-style: none; font-size: 14px; }
.ranking .row { display: flex; gap: 12px; justify-content: space-between; }
.ranking .row > :first-child { min-width: 0; } .ranking .row > :last-child { white-space: nowrap; flex: none; }
.track { height: 8px; border-radius: 4px; background: var(--track); overflow: hidden; margin-top: 3px; }
.track i { display: block; height: 100%; border-radius: 4px; background: var(--conflict); }
details { margin-top: 16px; } summary { cursor: pointer; font-weight: 600; font-size: 17px; padding: 6px 0; }
dl { display: grid; grid-template-columns: fit-content(34%) minmax(0, 1fr); gap: 3px 16px; margin: 0;
  font-size: 14px; }
dt { color: var(--soft); } dd { margin: 0; }
@media (max-width: 520px) {
  main { padding: 18px 10px 36px; } .card { padding: 13px 12px; } h1 { font-size: 22px; }
  .tiles { grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 8px; } .tile { padding: 10px 11px; }
  .tile .value { font-size: 20px; }
}
@media print { body { background: #fff; } .card { break-inside: avoid; } }
""".strip()
