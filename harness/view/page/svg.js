// The drawing as an SVG, for programs that have no canvas: picture.go runs it.

import {draw, themes} from './draw.js';
import {SVGGraphics} from './graphics.js';
import {rowsOf, index as indexOf, sizes} from './layout.js';
import {parse, apply} from './filter.js';

// picture returns the text of an SVG of the part of a model that a filter shows, from one time to another, in milliseconds.
globalThis.picture = (text, {query, from, to, width, dark}) => {
  const model = JSON.parse(text);
  const shown = apply(model, parse(query));
  const families = new Set(model.lanes.filter((l) => l.family).map((l) => l.resource + ' ' + l.family));
  const layout = rowsOf(model, {shown, open: query ? families : new Set(), column: true});
  const g = new SVGGraphics();
  draw(g, model, indexOf(model), layout, {
    from, to, width, height: layout.height, top: 0, left: sizes.label, theme: themes[dark ? 'dark' : 'light'], chosen: null, cursor: null,
    showsMark: (i) => shown.marks[i],
  });
  return g.svg(width, layout.height, model.title);
};
