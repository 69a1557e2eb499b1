// The drawing as an SVG, for programs that have no canvas: picture.go runs it.

import {draw, themes} from './draw.js';
import {SVGGraphics} from './graphics.js';
import {rowsOf, index as indexOf, sizes} from './layout.js';
import {parse, apply} from './filter.js';
import {sentence} from './words.js';

// picture returns the text of an SVG of the part of a model that a filter shows, from one time to another, in milliseconds. lanes, if given,
// are the only ones that it shows; with titles, each mark says what it is when the pointer is over it.
globalThis.picture = (text, {query, from, to, width, dark, lanes, titles}) => {
  const model = JSON.parse(text);
  const shown = apply(model, parse(query));
  shown.lanes = shown.lanes.map((is, i) => is && hasSomething(model, i, shown, from, to));
  if (lanes) shown.lanes = shown.lanes.map((is, i) => is && lanes.includes(i));
  const families = new Set(model.lanes.filter((l) => l.family).map((l) => l.resource + ' ' + l.family));
  const layout = rowsOf(model, {shown, open: query ? families : new Set(), column: true});
  const g = new SVGGraphics(titles && ((i) => titleOf(model, i)));
  draw(g, model, indexOf(model), layout, {
    from, to, width, height: layout.height, top: 0, left: sizes.label, theme: themes[dark ? 'dark' : 'light'], chosen: null, cursor: null,
    showsMark: (i) => shown.marks[i],
  });
  return g.svg(width, layout.height, model.title);
};

// hasSomething says whether a lane has a request or an object at a time.
function hasSomething(model, lane, shown, from, to) {
  return (model.lanes[lane].versions || []).some((v) => !v.gone && v.from <= to && v.to >= from) ||
    model.marks.some((m, i) => m.lane === lane && shown.marks[i] && m.start <= to && m.end >= from);
}

// sign returns the text of an SVG of one mark, for a legend.
globalThis.sign = (outcome, ring, framed) => {
  const g = new SVGGraphics();
  g.mark(outcome, 10, 8, {fill: themes.light.faint, bad: themes.light.bad, paper: themes.light.paper, ring: ring ? themes.light.stale : null});
  if (framed) g.frame(3, 1.5, 14, sizes.marks, {stroke: themes.light.ink});
  return g.svg(20, 16, '');
};

function titleOf(model, i) {
  const m = model.marks[i];
  return [sentence(model, m), m.fault, m.stale?.text].filter(Boolean).join('. ');
}
