// Two kinds of graphics with the same methods: on a canvas, and as the text of an SVG.

// The shape of a mark for each outcome of a request, so that it can be read without colour: lines from point to point.
const shapes = {
  read: {circle: 2.6},
  wrote: {points: [[0, -4.5], [4.5, 0], [0, 4.5], [-4.5, 0]], filled: true},
  'no-op': {points: [[0, -4.5], [4.5, 0], [0, 4.5], [-4.5, 0]], lines: [[-4.5, 0, 4.5, 0]]},
  conflict: {lines: [[-3.6, -3.6, 3.6, 3.6], [-3.6, 3.6, 3.6, -3.6]], bad: true},
  missing: {points: [[-3, -3], [3, -3], [3, 3], [-3, 3]]},
  refused: {points: [[-4.5, -3.5], [4.5, -3.5], [0, 4.5]], filled: true, bad: true},
  lost: {points: [[-4, -4], [4, -4], [-4, 4], [4, 4]], bad: true},
  'gave up': {lines: [[-3, -4, -3, 4], [1, -4, 1, 4]], bad: true},
  open: {points: [[-2, -4], [3, 0], [-2, 4]], filled: true},
};

export class CanvasGraphics {
  constructor(context, theme) {
    this.c = context;
    this.theme = theme;
    this.patterns = new Map();
  }
  rect(x, y, w, h, {fill, opacity = 1}) {
    this.c.globalAlpha = opacity;
    this.c.fillStyle = fill;
    this.c.fillRect(x, y, w, h);
    this.c.globalAlpha = 1;
  }
  frame(x, y, w, h, {stroke}) {
    this.c.strokeStyle = stroke;
    this.c.lineWidth = 2;
    this.c.strokeRect(x - 1, y - 1, w + 2, h + 2);
  }
  line(x1, y1, x2, y2, {stroke, width = 1, dash = [], opacity = 1}) {
    this.c.globalAlpha = opacity;
    this.c.strokeStyle = stroke;
    this.c.lineWidth = width;
    this.c.setLineDash(dash);
    this.c.beginPath();
    this.c.moveTo(x1, y1);
    this.c.lineTo(x2, y2);
    this.c.stroke();
    this.c.setLineDash([]);
    this.c.globalAlpha = 1;
  }
  hatch(x, y, w, h, {fill, stroke}) {
    if (!this.patterns.has(stroke)) {
      const tile = new OffscreenCanvas(6, 6), t = tile.getContext('2d');
      t.fillStyle = fill;
      t.fillRect(0, 0, 6, 6);
      t.strokeStyle = stroke;
      t.lineWidth = 1.4;
      t.beginPath();
      for (const d of [-6, 0, 6]) { t.moveTo(d, 6); t.lineTo(d + 6, 0); }
      t.stroke();
      this.patterns.set(stroke, this.c.createPattern(tile, 'repeat'));
    }
    this.c.fillStyle = this.patterns.get(stroke);
    this.c.fillRect(x, y, w, h);
  }
  text(x, y, text, {fill, size = 11, weight = 400, anchor = 'start', halo}) {
    if (!text) return;
    this.c.font = `${weight} ${size}px ${font}`;
    this.c.textAlign = anchor === 'middle' ? 'center' : anchor;
    if (halo) {
      this.c.strokeStyle = halo;
      this.c.lineWidth = 3;
      this.c.strokeText(text, x, y);
    }
    this.c.fillStyle = fill;
    this.c.fillText(text, x, y);
  }
  path(points, closed) {
    this.c.beginPath();
    points.forEach(([px, py], i) => (i ? this.c.lineTo(px, py) : this.c.moveTo(px, py)));
    if (closed) this.c.closePath();
  }
  mark(outcome, x, y, {fill, bad, paper, ring}) {
    const shape = shapes[outcome], colour = shape.bad ? bad : fill, c = this.c;
    if (ring) {
      c.strokeStyle = ring;
      c.lineWidth = 2;
      c.beginPath();
      c.arc(x, y, 7, 0, 2 * Math.PI);
      c.stroke();
    }
    c.strokeStyle = colour;
    c.lineWidth = 1.5;
    if (shape.circle) {
      c.beginPath();
      c.arc(x, y, shape.circle, 0, 2 * Math.PI);
      c.fillStyle = paper;
      c.fill();
      c.stroke();
    }
    if (shape.points) {
      this.path(shape.points.map(([px, py]) => [x + px, y + py]), true);
      c.fillStyle = shape.filled ? colour : paper;
      c.fill();
      c.stroke();
    }
    for (const [x1, y1, x2, y2] of shape.lines || []) {
      this.path([[x + x1, y + y1], [x + x2, y + y2]]);
      c.stroke();
    }
  }
  bolt(x, y, {fill}) {
    this.path(boltPoints.map(([px, py]) => [x + px, y + py]), true);
    this.c.fillStyle = fill;
    this.c.fill();
  }
}

export const font = 'system-ui, "DejaVu Sans", sans-serif';
const boltPoints = [[3, 0], [0, 5], [2.4, 5], [1.4, 9], [5.4, 3.6], [3, 3.6], [4.4, 0]];

export class SVGGraphics {
  // titles, if given, returns what is said of a mark when the pointer is over it.
  constructor(titles) {
    this.titles = titles;
    this.parts = [];
  }
  put(name, attributes, content) {
    const text = Object.entries(attributes).filter(([, v]) => v !== undefined && v !== null && v !== '')
      .map(([k, v]) => ` ${k}="${escape(typeof v === 'number' ? +v.toFixed(1) : v)}"`).join('');
    this.parts.push(content === undefined ? `<${name}${text}/>` : `<${name}${text}>${escape(content)}</${name}>`);
  }
  rect(x, y, w, h, {fill, opacity}) { if (w > 0 && h > 0) this.put('rect', {x, y, width: w, height: h, fill, 'fill-opacity': opacity === 1 ? undefined : opacity?.toFixed(2)}); }
  frame(x, y, w, h, {stroke}) { this.put('rect', {x: x - 1, y: y - 1, width: w + 2, height: h + 2, fill: 'none', stroke, 'stroke-width': 2}); }
  line(x1, y1, x2, y2, {stroke, width, dash, opacity}) {
    this.put('line', {x1, y1, x2, y2, stroke, 'stroke-width': width, 'stroke-dasharray': dash?.join(' '), 'stroke-opacity': opacity?.toFixed(2)});
  }
  // Not a pattern: Chromium prints those as pictures, of megabytes.
  hatch(x, y, w, h, {fill, stroke}) {
    this.put('rect', {x, y, width: w, height: h, fill});
    const lines = [];
    for (let from = x - (x % 6) - 6; from < x + w; from += 6) { // each rises to the right
      const begin = Math.max(0, (x - from) / h), end = Math.min(1, (x + w - from) / h);
      const at = (part) => `${+(from + part * h).toFixed(1)},${+(y + h - part * h).toFixed(1)}`;
      if (begin < end) lines.push(`M${at(begin)}L${at(end)}`);
    }
    this.put('path', {d: lines.join(''), stroke, 'stroke-width': 1.4, fill: 'none'});
  }
  text(x, y, text, {fill, size = 11, weight, anchor, halo}) {
    if (!text) return;
    this.put('text', {x, y, fill, 'font-size': size, 'font-weight': weight === 400 ? undefined : weight, 'text-anchor': anchor === 'start' ? undefined : anchor,
      stroke: halo, 'stroke-width': halo && 3, 'paint-order': halo && 'stroke'}, text);
  }
  mark(outcome, x, y, {fill, bad, paper, ring, title}) {
    const shape = shapes[outcome], colour = shape.bad ? bad : fill;
    if (title) this.parts.push(`<g><title>${escape(title)}</title>`);
    if (ring) this.put('circle', {cx: x, cy: y, r: 7, fill: 'none', stroke: ring, 'stroke-width': 2});
    if (shape.circle) this.put('circle', {cx: x, cy: y, r: shape.circle, fill: paper, stroke: colour, 'stroke-width': 1.5});
    if (shape.points) {
      this.put('polygon', {points: at(shape.points, x, y), fill: shape.filled ? colour : paper, stroke: colour, 'stroke-width': 1.5});
    }
    for (const [x1, y1, x2, y2] of shape.lines || []) this.put('line', {x1: x + x1, y1: y + y1, x2: x + x2, y2: y + y2, stroke: colour, 'stroke-width': 1.5});
    if (title) this.parts.push('</g>');
  }
  bolt(x, y, {fill}) { this.put('polygon', {points: at(boltPoints, x, y), fill}); }
  // svg returns the drawing, with a title for those who cannot see it.
  svg(width, height, title) {
    return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" font-family="${escape(font)}" role="img">` +
      `<title>${escape(title)}</title>\n${this.parts.join('\n')}\n</svg>\n`;
  }
}

function at(points, x, y) {
  return points.map(([px, py]) => `${+(x + px).toFixed(1)},${+(y + py).toFixed(1)}`).join(' ');
}

export function escape(text) {
  return String(text).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
}
