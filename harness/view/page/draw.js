// The drawing. It only knows a model, a view of it, and graphics: of a canvas, or of an SVG.

import {scaleLinear} from 'd3-scale';
import {sizes, firstAtOrAfter, processName} from './layout.js';

// The colours of Okabe and Ito, which people with colour blindness can tell apart.
const programs = ['#0072b2', '#e69f00', '#009e73', '#cc79a7', '#56b4e9', '#d55e00', '#b5a400'];

export const themes = {
  light: {
    paper: '#ffffff', ink: '#1b2330', faint: '#66707f', rule: '#e3e6eb', outside: '#c9ced6', told: '#dfe9e4', stale: '#c2410c', stalePaper: '#fde3d3',
    bad: '#b91c1c', chosen: '#1d4ed8', group: '#f3f5f8', onBand: '#111827', veil: 'rgba(255,255,255,0.7)', alpha: 0.32,
  },
  dark: {
    paper: '#12161c', ink: '#e6e9ee', faint: '#98a2b0', rule: '#2a313b', outside: '#4a5360', told: '#26352f', stale: '#fb923c', stalePaper: '#4a2a14',
    bad: '#f87171', chosen: '#93b4ff', group: '#1b212a', onBand: '#f3f5f8', veil: 'rgba(18,22,28,0.7)', alpha: 0.45,
  },
};

export function colourOf(theme, program) {
  return program < 0 ? theme.outside : programs[program % programs.length];
}

// scaleOf returns the scale from time to the horizontal position.
export function scaleOf(view) {
  return scaleLinear([view.from, view.to], [view.left, view.width]);
}

// exactly says a time to a millisecond.
export function exactly(ms) { return time(ms, 1); }

// time says a time in milliseconds in the unit that fits, as exactly as a step of the axis needs.
export function time(ms, step = Math.abs(ms) / 100) {
  if (ms === 0) return '0 s';
  const size = Math.abs(ms);
  const digits = (unit) => Math.max(0, Math.min(3, Math.ceil(-Math.log10(step / unit) - 1e-9)));
  if (size < 1000) return `${+ms.toFixed(digits(1))} ms`;
  if (size < 120000) return `${+(ms / 1000).toFixed(digits(1000))} s`;
  const minutes = Math.trunc(ms / 60000);
  return `${minutes} min ${+Math.abs((ms - minutes * 60000) / 1000).toFixed(digits(1000))} s`;
}

const characters = 6.1; // the width of a character of 11 pixels

function fitted(text, width) {
  const most = Math.floor(width / characters);
  if (text.length <= most) return text;
  return most < 3 ? '' : text.slice(0, most - 1) + '…';
}

// fittedName shortens a name in the middle: the end of a generated name is what tells it from others.
function fittedName(text, width) {
  const most = Math.floor(width / (characters + 0.4));
  if (text.length <= most) return text;
  const end = Math.min(8, Math.floor(most / 3));
  return text.slice(0, most - 1 - end) + '…' + text.slice(-end);
}

// draw draws the part of a model that a view shows: its rows between top and top+height, from one time to another. With view.all, it also draws what
// cannot be seen, because it is elsewhere or lies under something like it; that is for measurements.
export function draw(g, model, index, layout, view) {
  const theme = view.theme;
  const x = scaleOf(view);
  g.rect(0, 0, view.width, view.height, {fill: theme.paper});
  const ticks = x.ticks(Math.max(2, Math.floor((view.width - view.left) / 110)));
  for (const t of ticks) g.line(x(t), sizes.head, x(t), view.height, {stroke: theme.rule});
  for (const s of model.steps || []) {
    if (s.at >= view.from && s.at <= view.to) g.line(x(s.at), sizes.head, x(s.at), view.height, {stroke: theme.faint, dash: [1, 4]});
  }
  let drawn = 0;
  for (const row of layout.rows) {
    const y = row.y - view.top;
    if ((y + row.height < sizes.head || y > view.height) && !view.all) continue;
    const drawOther = {group: drawGroup, steps: drawSteps, process: drawProcess, series: drawSeries}[row.kind];
    if (drawOther) drawOther(g, model, row, y, view, x);
    else drawn += drawRow(g, model, index, row, y, view, x);
  }
  if (view.cursor !== null && view.cursor !== undefined) {
    const at = x(view.cursor);
    if (at < view.width) g.rect(Math.max(at, view.left), sizes.head, view.width - Math.max(at, view.left), view.height, {fill: theme.veil});
    if (at >= view.left) g.line(at, 0, at, view.height, {stroke: theme.chosen, width: 1.5});
  }
  g.rect(0, 0, view.width, sizes.head, {fill: theme.paper});
  g.line(0, sizes.head, view.width, sizes.head, {stroke: theme.rule});
  const step = ticks.length > 1 ? ticks[1] - ticks[0] : 1;
  for (const t of ticks) g.text(x(t), 15, t === 0 ? '0 s' : time(t, step), {fill: theme.faint, anchor: 'middle', size: 10});
  return drawn;
}

function drawGroup(g, model, row, y, view) {
  g.rect(0, y + 3, view.width, row.height - 6, {fill: view.theme.group});
  g.text(8, y + row.height / 2 + 4, row.label, {fill: view.theme.faint, weight: 600});
}

function drawSteps(g, model, row, y, view, x) {
  const least = 12; // pixels: steps that are closer have their names in one place
  let names = [];
  model.steps.forEach((s, i) => {
    const next = model.steps[i + 1];
    const from = Math.max(view.left, x(s.at)), to = Math.min(view.width, next ? x(next.at) : view.width);
    if (view.chosen === 's' + i) g.frame(from + 1, y + 2, Math.max(2, to - from - 2), row.height - 4, {stroke: view.theme.chosen});
    if (x(s.at) >= view.left || to >= view.left) names.push(s.name);
    if (next && to - from < least && to < view.width) return;
    if (to >= view.left && from <= view.width) g.text(from + 4, y + 13, fitted(names.join(', '), to - from - 6), {fill: view.theme.ink, weight: 600, size: 10});
    names = [];
  });
  if (view.left) drawName(g, 'steps', row, y, view);
}

// drawName draws the name of a row in its column, or above the row if there is no column, and returns where the row itself begins.
function drawName(g, name, row, y, view) {
  if (!view.left) {
    g.text(6, y + 10, fittedName(name, view.width - 12), {fill: view.theme.ink, weight: 500, halo: view.theme.paper});
    return y + sizes.name;
  }
  g.rect(0, y, view.left - 4, row.height, {fill: view.theme.paper});
  g.text(8, y + 11, fittedName(name, view.left - 16), {fill: view.theme.ink, weight: 500});
  return y;
}

function drawProcess(g, model, row, y, view, x) {
  const theme = view.theme, p = model.processes[row.process];
  const top = view.left ? y : y + sizes.name;
  (p.states || []).forEach((s, n) => {
    const from = Math.max(view.left, x(s.from)), to = Math.min(view.width, x(s.to)), width = Math.max(1, to - from);
    if (to < view.left || from > view.width) return;
    const isOff = s.is === 'ended' || s.is === 'killed';
    if (isOff) g.line(from, top + sizes.band / 2, to, top + sizes.band / 2, {stroke: theme.faint, dash: [1, 4]});
    else g.rect(from, top, width, sizes.band, {fill: colourOf(theme, p.program), opacity: s.is === 'frozen' ? 0.08 : s.is === 'stopping' ? 0.18 : theme.alpha});
    if (s.is === 'frozen') {
      g.line(from, top, to, top, {stroke: theme.bad, dash: [5, 3], width: 1.5});
      g.line(from, top + sizes.band, to, top + sizes.band, {stroke: theme.bad, dash: [5, 3], width: 1.5});
    }
    if (s.is === 'killed' && x(s.from) >= view.left) g.mark('conflict', from, top + sizes.band / 2, {fill: theme.bad, bad: theme.bad, paper: theme.paper});
    else if (s.is === 'ended' || n > 0 && s.is === 'running' && ['ended', 'killed'].includes(p.states[n - 1].is)) g.line(from, top, from, top + sizes.band, {stroke: theme.ink, width: 2});
    g.text(from + (isOff ? 8 : 4), top + 11, fitted(s.is, width - 8), {fill: s.is === 'running' || s.is === 'ended' ? theme.faint : theme.bad, size: 10, halo: isOff ? theme.paper : undefined});
    if (view.chosen === `p${row.process}.${n}`) g.frame(from, top, width, sizes.band, {stroke: theme.chosen});
  });
  for (const l of p.leads || []) {
    const from = Math.max(view.left, x(l.from)), to = Math.min(view.width, x(l.to));
    if (to < view.left || from > view.width) continue;
    const mine = l.number ? top : top + sizes.band + 2; // several processes: in place of their states, which are not known
    g.rect(from, mine, Math.max(1.5, to - from), l.number ? sizes.band : 4, {fill: colourOf(theme, p.program), opacity: l.number % 2 === 0 ? theme.alpha * 2 : l.number ? theme.alpha : 1});
    if (l.number) g.text(from + 3, mine + 11, fitted(`process ${l.number}`, to - from - 4), {fill: theme.onBand, size: 10});
  }
  drawName(g, row.label, row, y, view);
  if (view.left && p.leads) g.text(view.left - 10, top + sizes.band + 7, (p.leads[0].number ? 'which of them ' : '') + 'last wrote the Lease', {fill: theme.faint, size: 8.5, anchor: 'end'});
}

function drawSeries(g, model, row, y, view, x) {
  const theme = view.theme, s = model.series[row.series];
  const top = view.left ? y : y + sizes.name;
  let until = -1, highest = 0; // of what is drawn at one pixel, the highest counts
  for (let n = Math.max(0, firstAtOrAfter(s.points, view.from, (p) => p[0]) - 1); n < s.points.length && s.points[n][0] <= view.to; n++) {
    const [at, value] = s.points[n];
    const from = Math.max(view.left, x(at)), to = Math.min(view.width, n + 1 < s.points.length ? x(s.points[n + 1][0]) : x(model.end));
    if (to < view.left || !s.most) continue;
    if (to <= until && value <= highest) continue;
    highest = to <= until ? value : 0;
    until = Math.ceil(to);
    const height = value / s.most * (sizes.series - 4);
    g.rect(from, top + sizes.series - height, Math.max(1, to - from), height, {fill: colourOf(theme, s.program), opacity: 0.55});
  }
  g.line(view.left, top + sizes.series, view.width, top + sizes.series, {stroke: theme.faint});
  drawName(g, row.label, row, y, view);
  g.text(view.left ? view.left - 10 : view.width - 4, top + (view.left ? 25 : 11), `${+s.most.toPrecision(3)} at most`, {fill: theme.faint, size: 8.5, anchor: 'end'});
}

function drawRow(g, model, index, row, y, view, x) {
  const theme = view.theme;
  const isFamily = row.kind === 'family';
  if (!view.left) {
    g.text(6, y + 10, fittedName((isFamily ? '▸ ' : '') + row.label + (isFamily ? ` ×${row.lanes.length}` : ''), view.width - 12), {fill: theme.ink, weight: 500, halo: theme.paper});
    y += sizes.name;
  }
  const bottom = y + sizes.marks;
  const toldPrograms = [];
  const taken = view.all ? {has: () => false, add: () => {}} : new Set(); // what has been drawn already, and where: of a family, much would be drawn in the same place
  for (const i of row.lanes) {
    const lane = model.lanes[i];
    if (lane.versions) {
      drawVersions(g, model, lane, i, bottom, view, x, isFamily, taken);
    }
    (row.told || lane.told || []).forEach((told, n) => {
      const at = bottom + sizes.band + (isFamily ? 0 : n * sizes.told);
      drawTold(g, told, at, view, x, isFamily, taken);
      if (!isFamily && view.left) toldPrograms.push([told, at]);
      if (!isFamily && !view.left) g.text(4, at + 5.5, model.programs[told.program], {fill: theme.faint, size: 7.5, halo: theme.paper});
    });
  }
  let drawn = 0;
  for (const i of row.lanes) drawn += drawMarks(g, model, index, i, y, view, x, taken);
  if (view.left) {
    g.rect(0, y, view.left - 4, row.height, {fill: theme.paper});
    const sign = isFamily ? '▸ ' : row.key ? '  ' : '';
    g.text(8, y + sizes.marks + (model.lanes[row.lanes[0]].versions ? 11 : 0), fittedName(sign + row.label + (isFamily ? ` ×${row.lanes.length}` : ''), view.left - 16),
      {fill: theme.ink, weight: 500});
    for (const [told, at] of toldPrograms) {
      g.text(view.left - 10, at + 6.5, fitted('told ' + processName(model, told), (view.left - 30) * 1.2), {fill: theme.faint, size: 8.5, anchor: 'end'});
    }
  }
  return drawn;
}

// What looks like nothing else: see looks in layout.js.
const looks = {version: 8000, told: 8001, most: 8192};

// isTaken says whether something that looks so has been drawn at a pixel, and takes it.
function isTaken(taken, look, at) {
  const key = Math.round(at) * looks.most + look;
  if (taken.has(key)) return true;
  taken.add(key);
  return false;
}

function drawVersions(g, model, lane, i, y, view, x, isFamily, taken) {
  const opacity = isFamily ? 0.5 : 1;
  const theme = view.theme;
  const versions = lane.versions;
  const first = Math.max(0, firstAtOrAfter(versions, view.from, (v) => v.to));
  let until = -1; // nothing more is visible to the left of this pixel
  for (let n = first; n < versions.length && versions[n].from <= view.to; n++) {
    const v = versions[n];
    const from = Math.max(view.left, x(v.from)), to = Math.min(view.width, x(v.to));
    if (to < view.left || to <= until) continue;
    until = Math.max(from + 0.5, Math.floor(to));
    if (isFamily && to - from < 2 && isTaken(taken, looks.version, from)) continue;
    if (v.gone) {
      const end = n === versions.length - 1 ? Math.min(to, from + 60) : to; // what does not come back ends soon
      g.line(from, y + sizes.band / 2, end, y + sizes.band / 2, {stroke: theme.faint, dash: [1, 4]});
      g.line(from, y + 1, from, y + sizes.band - 1, {stroke: theme.ink, width: 2});
      if (to - from > 40 && opacity === 1 && v.from >= view.from) g.text(from + 5, y + 11, 'deleted', {fill: theme.faint, size: 9.5});
      continue;
    }
    const program = v.mark < 0 ? -1 : model.marks[v.mark].program;
    g.rect(from, y, Math.max(1, to - from - 1), sizes.band, {fill: colourOf(theme, program), opacity: theme.alpha * opacity, key: `v${i}.${n}`});
    if (v.deleting) g.line(from, y + sizes.band - 1, to - 1, y + sizes.band - 1, {stroke: theme.bad, width: 2, dash: [5, 3]});
    if (v.created) g.line(from, y, from, y + sizes.band, {stroke: theme.ink, width: 2});
    if (opacity === 1 && to - from > 34) {
      const who = program < 0 ? '' : ' ' + model.programs[program];
      const text = 'v' + v.rv + who + (v.changed ? ' · ' + v.changed : '') + (v.deleting ? ' · being deleted' : '');
      g.text(from + 4, y + 11, fitted(text, to - from - 6), {fill: theme.onBand, size: 10});
    }
    if (view.chosen === `v${i}.${n}`) g.frame(from, y, Math.max(2, to - from), sizes.band, {stroke: theme.chosen});
  }
}

function drawTold(g, told, y, view, x, isFamily, taken) {
  const theme = view.theme;
  const spans = told.spans;
  const isBehind = (s) => s.knew !== s.had && !s.off;
  const labels = [];
  let until = -1;
  for (let n = firstAtOrAfter(spans, view.from, (s) => s.to); n < spans.length && spans[n].from <= view.to; n++) {
    const s = spans[n];
    const from = Math.max(view.left, x(s.from)), to = Math.min(view.width, x(s.to));
    if (to - from < 0.4 && to <= until || s.had < 0) continue; // there was no object yet
    until = to;
    if (isFamily && (!isBehind(s) || to - from < 2 && isTaken(taken, looks.told, from))) continue;
    if (isBehind(s)) {
      g.hatch(from, y, Math.max(1, to - from), sizes.told - 4, {fill: theme.stalePaper, stroke: theme.stale});
      const isFirst = n === 0 || !isBehind(spans[n - 1]);
      if (isFirst && Math.min(view.width, x(s.from + s.lag)) - from > 95) labels.push([from + 3, `behind for ${time(s.lag)}`]);
    } else if (s.off) {
      g.line(from, y + 2.5, to, y + 2.5, {stroke: theme.faint, dash: [1, 4]});
    } else {
      g.rect(from, y, Math.max(0.5, to - from), sizes.told - 4, {fill: theme.told});
    }
  }
  if (!isFamily) for (const [at, text] of labels) g.text(at, y + 5.5, text, {fill: theme.stale, size: 8.5, halo: theme.paper, weight: 600});
}

function drawMarks(g, model, index, lane, y, view, x, taken) {
  const theme = view.theme;
  const of = index.marks[lane];
  const middle = y + sizes.marks / 2;
  let drawn = 0;
  for (let n = view.all ? 0 : firstAtOrAfter(of, view.from - index.longest[lane], (i) => model.marks[i].start); n < of.length; n++) {
    const i = of[n], m = model.marks[i];
    if (m.start > view.to && !view.all) break;
    if (m.end < view.from && !view.all || !view.showsMark(i)) continue;
    const from = x(m.start), to = x(m.end);
    const isWatch = m.verb === 'watch';
    const at = isWatch ? from : to;
    const isChosen = view.chosen === 'm' + i;
    if (to - from < 2 && isTaken(taken, index.looks[i], at) && !isChosen) continue;
    const colour = colourOf(theme, m.program);
    if (to - from > 3) g.line(Math.max(from, view.left), middle, Math.min(to, view.width), middle, {stroke: colour, width: isWatch ? 1 : 2, opacity: isWatch ? 0.4 : 0.7});
    if ((at < view.left || at > view.width) && !view.all) continue;
    g.mark(m.outcome, at, middle, {fill: colour, bad: theme.bad, paper: theme.paper, ring: m.stale ? theme.stale : null, title: g.titles && g.titles(i)});
    if (m.differs) g.frame(at - 7, y, 14, sizes.marks, {stroke: theme.ink});
    if (m.fault) g.bolt(at + 4, y + 1, {fill: theme.bad});
    if (isChosen) g.frame(at - 7, y, 14, sizes.marks, {stroke: theme.chosen});
    drawn++;
  }
  return drawn;
}
