// The page: what a person does with the drawing.

import {select} from 'd3-selection';
import {zoom, zoomIdentity} from 'd3-zoom';
import {draw, themes, colourOf, scaleOf, exactly as time} from './draw.js';
import {CanvasGraphics, SVGGraphics} from './graphics.js';
import {rowsOf, index as indexOf, sizes, firstAtOrAfter} from './layout.js';
import {parse, apply, isFailure, isWrite} from './filter.js';
import * as words from './words.js';

const $ = (id) => document.getElementById(id);
const speeds = [0.1, 0.25, 0.5, 1, 2, 5, 10];
const keysHelp = [
  ['/', 'filter: words of names; resource: object: program: verb: told: and failed, no-op, conflict, stale, fault, write'],
  ['← →', 'earlier, later'], ['+ −', 'zoom in, out'], ['0', 'all of it'], ['↑ ↓', 'scroll'],
  ['f F', 'next fault, which was injected on purpose: a good way to begin'], ['e E', 'next failure'], ['n N', 'next request, the one before'], ['w W', 'next write'], ['c C', 'next conflict'],
  ['s S', 'next write by a program that was behind'], ['space', 'play, stop'], ['[ ]', 'slower, faster'], ['x', 'show each object of all families, or one row for each family'],
  ['t', 'the requests in sight as a table'], ['Esc', 'select nothing, then: filter nothing'], ['?', 'these keys'],
];

let model, index, layout, shown;
const state = {all: false, from: 0, to: 1, top: 0, chosen: null, query: '', open: new Set(), cursor: null, speed: 1, playing: null};
let dark = matchMedia('(prefers-color-scheme: dark)');
let printing = false;

function theme() { return themes[dark.matches && !printing ? 'dark' : 'light']; }

function load(next) {
  const old = model;
  const followed = !old || state.to >= old.end && state.from <= 0 ? 'all' : state.to >= old.end ? 'end' : 'none';
  model = next;
  index = indexOf(model);
  if (followed === 'all') [state.from, state.to] = whole();
  if (followed === 'end') {
    const width = state.to - state.from;
    [state.from, state.to] = [whole()[1] - width, whole()[1]];
  }
  document.title = model.title + ' · workshop view';
  $('title').textContent = model.title;
  filter();
}

// whole returns a little more than the time of the recording.
function whole() {
  const margin = Math.max(model.end, 1) * 0.02;
  return [-margin, Math.max(model.end, 1) + margin];
}

function filter() {
  shown = apply(model, parse(state.query));
  relayout();
}

function relayout() {
  layout = rowsOf(model, {shown, open: state.open, column: left() > 0});
  $('sizer').style.height = layout.height + 'px';
  render();
}

function left() { return $('drawing').clientWidth > 720 ? sizes.label : 0; }

function viewOf(width, height) {
  return {
    ...state, width, height, left: left(), theme: theme(), top: $('drawing').scrollTop, showsMark: (i) => shown.marks[i],
  };
}

let pending = false;
function render() {
  if (pending) return;
  pending = true;
  requestAnimationFrame(() => { pending = false; paint(); });
}

function paint() {
  const box = $('drawing'), canvas = $('canvas'), ratio = devicePixelRatio || 1;
  const width = box.clientWidth, height = box.clientHeight;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = width + 'px';
    canvas.style.height = height + 'px';
  }
  const context = canvas.getContext('2d');
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  draw(new CanvasGraphics(context, theme()), model, index, layout, viewOf(width, height));
  sayState();
  bill();
  if (!$('words').classList.contains('hidden') || !table.made) table();
  keepAddress();
}

function sayState() {
  const lanes = shown.lanes.filter(Boolean).length, marks = shown.marks.filter(Boolean).length;
  const parts = [];
  if (model.marks.length + model.events.length === 0) parts.push('No request has been recorded yet.');
  if (lanes < model.lanes.length || marks < model.marks.length) {
    parts.push(`The filter shows ${lanes} of ${model.lanes.length} rows and ${marks} of ${model.marks.length} requests; Esc shows all.`);
  }
  if (state.cursor !== null) parts.push(`At ${time(state.cursor)}.`);
  parts.push(...model.missing);
  parts.push(...[live.problem, said.text].filter(Boolean));
  const text = parts.join(' ');
  if ($('state').textContent !== text) $('state').textContent = text;
}

// bill shows what each program's requests have cost up to the cursor, or in all.
function bill() {
  const until = state.cursor ?? Infinity;
  const key = until + ' ' + model.marks.length + ' ' + model.events.length;
  if (bill.key === key) return;
  bill.key = key;
  const costs = model.programs.map(() => ({requests: 0, writes: 0, noop: 0, failed: 0, events: 0, bytes: 0, lately: 0}));
  const end = Math.min(until, model.end);
  for (const m of model.marks) {
    if (m.start > until) break;
    const c = costs[m.program];
    c.requests++;
    if (m.start > end - 1000) c.lately++;
    if (isWrite(m)) c.writes++;
    if (m.outcome === 'no-op') c.noop++;
    if (isFailure(m)) c.failed++;
    c.bytes += (m.sent || 0) + (m.received || 0);
  }
  for (const e of model.events) {
    if (e.told > until) break;
    costs[e.program].events++;
    costs[e.program].bytes += e.bytes || 0;
  }
  const rows = [['', 'requests', 'in the last second', 'writes', 'no-op', 'failed', 'events', 'KB', null]];
  model.programs.forEach((name, i) => {
    const c = costs[i];
    if (!index.active.has(i)) return; // of it, only its process is known
    rows.push([name, c.requests, c.lately, c.writes, c.noop, c.failed, c.events, words.kilobytes(c.bytes), i]);
  });
  $('bill').replaceChildren(...rows.map((row, r) => element('tr', {}, row.slice(0, -1).map((cell, n) => {
    const td = element(r ? 'td' : 'th', r ? {} : {scope: 'col'}, [String(cell)]);
    if (r && n === 0) {
      const swatch = element('span', {class: 'swatch'});
      swatch.style.background = colourOf(theme(), row.at(-1));
      td.prepend(swatch);
    }
    return td;
  }))));
}

function element(name, attributes = {}, children = []) {
  const e = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
  e.append(...children);
  return e;
}

// table says the requests in sight in words.
function table() {
  table.made = true;
  const from = firstAtOrAfter(model.marks, state.from, (m) => m.start);
  const rows = [];
  let more = 0, requests = 0;
  const besides = besidesInSight();
  const addBesides = (until) => {
    while (besides.length && besides[0].at <= until) {
      const {at, what, cells} = besides.shift();
      rows.push(rowOf(at, what, cells));
    }
  };
  for (let i = from; i < model.marks.length && model.marks[i].start <= state.to; i++) {
    if (!shown.marks[i]) continue;
    if (requests === 200) { more++; continue; }
    const m = model.marks[i];
    addBesides(m.start);
    rows.push(rowOf(m.start, 'm' + i, [words.senderOf(model, m), m.verb, words.whatOf(model, m), words.outcomeOf(m), m.fault || '', m.stale?.text || '']));
    requests++;
  }
  addBesides(state.to);
  const head = ['time', 'program', 'verb', 'object', 'outcome', 'fault', 'what it did not know'].map((text) => element('th', {scope: 'col'}, [text]));
  $('words').replaceChildren(element('table', {}, [
    element('caption', {}, [`${requests} requests from ${time(Math.max(0, state.from))} to ${time(state.to)}` + (more ? `, and ${more} more: zoom in` : '')]),
    element('thead', {}, [element('tr', {}, head)]), element('tbody', {}, rows)]));
}

// rowOf returns a row of the table, whose time selects what it is about.
function rowOf(at, what, cells) {
  const show = element('button', {}, [time(at)]);
  show.addEventListener('click', () => choose(what));
  return element('tr', {}, [element('td', {}, [show]), ...cells.map((text) => element('td', {}, [text]))]);
}

// besidesInSight returns the steps and what processes did, for the table, in the order of time.
function besidesInSight() {
  if (state.query) return []; // of what was asked for, they are not
  const all = (model.steps || []).map((s, i) => ({at: s.at, what: 's' + i, cells: ['', 'step', s.name, '', '', '']}));
  (model.processes || []).forEach((p, i) => {
    if (!shown.programs[p.program]) return;
    (p.states || []).forEach((s, n) => all.push({at: s.from, what: `p${i}.${n}`, cells: [model.programs[p.program], 'process', s.is, '', '', '']}));
  });
  return all.filter(({at}) => at >= state.from && at <= state.to).sort((a, b) => a.at - b.at);
}

// choose selects a part of the model: m7 is a request, e7 an event, v3.2 a version of a lane, p1.2 a state of a process, s1 a step.
function choose(what, {reveal = true} = {}) {
  said.text = '';
  describe(what);
  if (reveal && !$('details').hidden) show(what);
}

function describe(what) {
  const aside = $('details');
  const content = what && details(what);
  aside.hidden = !content;
  if (content) {
    const at = what === state.chosen ? aside.scrollTop : 0;
    aside.replaceChildren(...content);
    aside.scrollTop = at;
  }
  state.chosen = what;
  render();
}

function show(what) {
  const [kind, a, b] = split(what);
  const lane = kind === 'm' ? model.marks[a].lane : kind === 'e' ? model.events[a].lane : kind === 'v' ? a : -1;
  const at = {m: () => model.marks[a].start, e: () => model.events[a].told, v: () => model.lanes[a].versions[b].from,
    p: () => model.processes[a].states[b].from, s: () => model.steps[a].at}[kind]();
  const width = state.to - state.from;
  if (at < state.from || at > state.to) move(at - width / 2, at + width / 2);
  let row = layout.rows.find((r) => r.lanes.includes(lane));
  if (!row) return;
  if (row.kind === 'family') {
    state.open.add(row.key);
    relayout();
    row = layout.rows.find((r) => r.lanes.includes(lane));
  }
  const box = $('drawing');
  if (row.y < box.scrollTop + sizes.head || row.y + row.height > box.scrollTop + box.clientHeight) box.scrollTop = row.y - box.clientHeight / 3;
}

function split(what) {
  const [a, b] = what.slice(1).split('.').map(Number);
  return [what[0], a, b];
}

function exists(what) {
  const [kind, a, b] = split(what);
  if (kind === 'm') return a >= 0 && a < model.marks.length;
  if (kind === 'e') return a >= 0 && a < model.events.length;
  if (kind === 'p') return Boolean(model.processes?.[a]?.states?.[b]);
  if (kind === 's') return Boolean(model.steps?.[a]);
  return kind === 'v' && Boolean(model.lanes[a]?.versions?.[b]);
}

function details(what) {
  const [kind, a, b] = split(what);
  if (!exists(what)) return null;
  if (kind === 'm') return ofMark(a);
  if (kind === 'e') return ofEvent(a);
  if (kind === 'p') return ofState(a, b);
  if (kind === 's') return [element('h2', {}, [words.stepSentence(model.steps[a])])];
  return ofVersion(a, b);
}

function fields(list) {
  return element('dl', {}, list.filter(([, v]) => v !== undefined && v !== '' && v !== null).flatMap(([k, v]) => [element('dt', {}, [k]), element('dd', {}, [String(v)])]));
}

// links lists parts of the model to go to.
function links(list) {
  return element('ul', {}, list.map(([what, text]) => {
    const b = element('button', {}, [text]);
    b.addEventListener('click', () => choose(what));
    return element('li', {}, [b]);
  }));
}

const markLink = (i) => ['m' + i, `${time(model.marks[i].start)} ${words.sentence(model, model.marks[i])}`];
const eventLink = (i) => ['e' + i, words.eventSentence(model, model.events[i])];

function ofMark(i) {
  const m = model.marks[i];
  const out = [element('h2', {}, [words.sentence(model, m)])];
  if (m.stale) out.push(element('p', {class: 'stale'}, [m.stale.text]));
  if (m.fault) out.push(element('p', {class: 'stale'}, [`On purpose: ${m.fault}.`]));
  out.push(fields([['sent', time(m.start)], [m.verb === 'watch' ? 'open for' : 'answered after', time(m.end - m.start)], ['status', m.status], ['error', m.error], ['user', m.who],
    ['path', m.uri], ['bytes sent', m.sent], ['bytes received', m.received],
    ['on version', m.rvBefore], [m.verb === 'list' ? 'version of the list' : 'left version', m.rvAfter]]));
  if (m.cause) {
    out.push(element('h3', {}, ['Why, inferred']), element('p', {}, [words.ruleOf(m)]));
    if (m.cause.mark >= 0) out.push(links([markLink(m.cause.mark)]));
    if (m.cause.events) out.push(links(m.cause.events.map(eventLink)));
    if (m.cause.more) out.push(element('p', {}, [`And ${m.cause.more} more.`]));
  }
  const lane = model.lanes[m.lane];
  const n = (lane.versions || []).findIndex((v) => v.mark === i);
  if (n >= 0) {
    out.push(element('h3', {}, ['What came of it']), links([[`v${m.lane}.${n}`, words.versionSentence(model, m.lane, n)]]));
    const told = index.told.get(m.lane + ' ' + n) || [];
    out.push(links(told.map(eventLink)));
    out.push(...reactions(told));
  }
  if (index.tries.has(i)) out.push(element('h3', {}, ['Tried again']), links([markLink(index.tries.get(i))]));
  return out;
}

// reactions are the requests for which events are candidates.
function reactions(events) {
  const marks = [...new Set(events.flatMap((e) => index.reactions.get(e) || []))].sort((x, y) => x - y);
  if (!marks.length) return [];
  const most = 12;
  return [element('h3', {}, ['Who acted after it, inferred']), links(marks.slice(0, most).map(markLink)),
    ...(marks.length > most ? [element('p', {}, [`And ${marks.length - most} more.`])] : [])];
}

function ofEvent(i) {
  const e = model.events[i];
  const out = [element('h2', {}, [words.eventSentence(model, e)]),
    fields([['came', time(e.came)], ['told', time(e.told)], ['type', e.type], ['bytes', e.bytes]])];
  if (e.version >= 0) {
    out.push(element('h3', {}, ['The version']), links([[`v${e.lane}.${e.version}`, words.versionSentence(model, e.lane, e.version)]]));
  }
  return [...out, ...reactions([i])];
}

function ofVersion(lane, n) {
  const v = model.lanes[lane].versions[n];
  const out = [element('h2', {}, [`${words.nameOf(model, lane)}: ${words.versionSentence(model, lane, n)}`]),
    fields([['from', (v.late ? 'no later than ' : '') + time(v.from)], ['to', time(v.to)], ['uid', v.uid]])];
  if (v.mark >= 0) out.push(element('h3', {}, ['Written by']), links([markLink(v.mark)]));
  const told = index.told.get(lane + ' ' + n) || [];
  if (told.length) out.push(element('h3', {}, ['Who was told']), links(told.map(eventLink)));
  for (const t of model.lanes[lane].told || []) {
    const during = t.spans.filter((s) => s.had === n);
    // It may have been told of it by a list, or of a later one at once, or have had no watch.
    if (during.some((s) => !s.off && s.knew < n) && !t.spans.some((s) => s.knew === n) && !told.some((e) => model.events[e].program === t.program)) {
      out.push(element('p', {class: 'stale'}, [`${words.toldName(model, t)} had a watch of it meanwhile, and was never told of this version.`]));
    }
  }
  return [...out, ...reactions(told)];
}

function ofState(i, n) {
  const p = model.processes[i], s = p.states[n];
  const out = [element('h2', {}, [words.stateSentence(model, i, n)])];
  if (n > 0) out.push(element('h3', {}, ['Before']), links([[`p${i}.${n - 1}`, words.stateSentence(model, i, n - 1)]]));
  const leads = (p.leads || []).filter((l) => l.from < s.to && l.to > s.from);
  if (leads.length) {
    out.push(element('h3', {}, ['Who leads, inferred']), ...leads.map((l) => element('p', {}, [words.leadSentence(model, i, l) + '.'])));
  }
  return out;
}

// at returns the part of the model at a point of the drawing.
function at(px, py) {
  const y = py + $('drawing').scrollTop;
  const row = layout.rows.find((r) => y >= r.y && y < r.y + r.height);
  if (!row || py < sizes.head) return null;
  if (row.kind === 'process' || row.kind === 'steps') {
    const t = scaleOf(viewOf($('drawing').clientWidth, 0)).invert(px);
    const begins = row.kind === 'steps' ? model.steps.map((s) => s.at) : (model.processes[row.process].states || []).map((s) => s.from);
    const n = begins.findLastIndex((from) => from <= t);
    return n < 0 ? null : {what: row.kind === 'steps' ? 's' + n : `p${row.process}.${n}`};
  }
  if (row.kind === 'series') return null;
  if (row.kind !== 'lane' && (row.kind === 'family' && px < Math.max(left(), 120) || row.kind === 'group')) return row.kind === 'family' ? {family: row.key} : null;
  if (row.key && px < left()) return {family: row.key};
  const x = scaleOf(viewOf($('drawing').clientWidth, 0));
  const t = x.invert(px);
  const near = x.invert(px + 7) - t;
  if (y < row.y + sizes.marks + (left() ? 0 : sizes.name)) {
    let best = null, least = near;
    for (const lane of row.lanes) {
      for (const i of index.marks[lane]) {
        const m = model.marks[i];
        if (!shown.marks[i]) continue;
        if (m.start > t + near) break;
        const end = m.verb === 'watch' ? m.start : m.end;
        const distance = t >= m.start && t <= end ? near * 0.5 : Math.min(Math.abs(m.start - t), Math.abs(end - t));
        if (distance <= least) { best = i; least = distance; }
      }
    }
    if (best !== null) return {what: 'm' + best};
  }
  for (const lane of row.lanes) {
    const versions = model.lanes[lane].versions || [];
    const n = firstAtOrAfter(versions, t, (v) => v.to);
    if (n < versions.length && versions[n].from <= t) return {what: `v${lane}.${n}`};
  }
  return null;
}

function move(from, to) {
  const [least, most] = whole();
  const width = Math.min(Math.max(to - from, 0.05), most - least);
  from = Math.min(Math.max(from, least), most - width);
  state.from = from;
  state.to = from + width;
  syncZoom();
  render();
}

// d3-zoom turns wheel, touch and drag into a new view of time.
let syncing = false;
const zoomer = zoom().scaleExtent([1, 1e7]).filter((event) => !event.button && (event.type !== 'wheel' || event.ctrlKey || event.metaKey || event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)))
  .on('zoom', ({transform, sourceEvent}) => {
    if (syncing || !sourceEvent) return;
    const width = $('drawing').clientWidth - left(), [least, most] = whole();
    const of = (px) => least + (px - transform.x) / transform.k / width * (most - least);
    state.from = Math.max(least, of(left()));
    state.to = Math.min(most, of(left() + width));
    render();
  });

function syncZoom() {
  const width = $('drawing').clientWidth - left(), [least, most] = whole();
  if (width <= 0) return;
  const k = (most - least) / (state.to - state.from);
  const x = left() - (state.from - least) / (most - least) * width * k;
  syncing = true;
  zoomer.extent([[left(), 0], [left() + width, 1]]).translateExtent([[-Infinity, -Infinity], [Infinity, Infinity]]);
  select($('canvas')).call(zoomer.transform, zoomIdentity.translate(x, 0).scale(k));
  syncing = false;
}

const jumps = {
  any: () => true, write: isWrite, conflict: (m) => m.outcome === 'conflict', failed: isFailure, fault: (m) => Boolean(m.fault), stale: (m) => Boolean(m.stale),
};

function jump(kind, step) {
  const current = state.chosen?.[0] === 'm' ? split(state.chosen)[1] : step > 0 ? firstAtOrAfter(model.marks, state.from, (m) => m.start) - 1 : firstAtOrAfter(model.marks, state.to, (m) => m.start);
  for (let i = current + step; i >= 0 && i < model.marks.length; i += step) {
    if (shown.marks[i] && jumps[kind](model.marks[i])) return choose('m' + i);
  }
  say(`There is no ${step > 0 ? 'later' : 'earlier'} ${{any: 'request', failed: 'failure', stale: 'write by a program that was behind'}[kind] || kind}${state.query ? ' that the filter shows' : ''}.`);
}

// said is the answer to a key or a button: it stands for four seconds, or until something is chosen.
const said = {text: ''};
function say(text) {
  said.text = text;
  clearTimeout(said.timer);
  said.timer = setTimeout(() => { said.text = ''; render(); }, 4000);
  render();
}

function play() {
  if (state.playing) {
    state.playing = null;
  } else {
    if (state.cursor === null || state.cursor >= model.end) state.cursor = Math.max(0, state.from);
    let last = performance.now();
    const mine = state.playing = {};
    const step = (now) => {
      if (state.playing !== mine) return;
      state.cursor += (now - last) * speeds[speeds.indexOf(state.speed)];
      last = now;
      if (state.cursor >= model.end) {
        state.cursor = null;
        state.playing = null;
      } else if (state.cursor > state.to) {
        move(state.cursor - (state.to - state.from) * 0.1, state.cursor + (state.to - state.from) * 0.9);
      }
      controls();
      render();
      requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  }
  controls();
  render();
}

function controls() {
  $('play').textContent = state.playing ? '❚❚' : '▶';
  $('play').setAttribute('aria-label', state.playing ? 'Stop' : 'Play');
  $('speed').textContent = state.speed + '×';
}

function faster(step) {
  state.speed = speeds[Math.min(speeds.length - 1, Math.max(0, speeds.indexOf(state.speed) + step))];
  controls();
  keepAddress();
}

function zoomBy(factor) {
  const middle = state.chosen && exists(state.chosen) && state.chosen[0] === 'm' ? model.marks[split(state.chosen)[1]].start : (state.from + state.to) / 2;
  move(middle - (middle - state.from) * factor, middle + (state.to - middle) * factor);
}

function toggleTable() {
  const hidden = $('words').classList.toggle('hidden');
  $('table-button').setAttribute('aria-pressed', String(!hidden));
  table();
  render();
}

function toggleFamilies() {
  const keys = new Set(model.lanes.filter((l) => l.family).map((l) => l.resource + ' ' + l.family));
  state.open = state.open.size < keys.size ? keys : new Set();
  relayout();
}

function help() {
  $('help').replaceChildren(element('h2', {}, ['Keys']), element('dl', {}, keysHelp.flatMap(([k, v]) => [element('dt', {}, [k]), element('dd', {}, [v])])),
    element('p', {}, ['Drag to move, Ctrl and the wheel to zoom; click a mark, a band or a family.']),
    element('h2', {}, ['Marks']), element('dl', {}, [
      ['○', 'read'], ['◆', 'write'], ['◇', 'write that changed nothing'], ['✕', 'conflict'], ['□', 'not found'], ['▼', 'refused'], ['hourglass', 'no whole answer'], ['❘❘', 'the client gave up'],
      ['flash', 'a fault, injected on purpose'], ['line', 'from when a request was sent to when it was answered; a watch, for as long as it was open'],
      ['wide band', 'the versions of the object in the API server, in the colour of who wrote them; grey: somebody whose requests are not in the recording'],
      ['thin band', 'what this program has been told of the object; plain: all of it'], ['thick line', 'the object was created, or ended'], ['▸ ×11', 'several objects in one row; click it'],
      ['◯ around a mark', 'its program had not been told of everything'], ['▨ under a band', 'what this program has been told is behind the API server'], ['┄ under a band', 'being deleted'], ['│ from top to bottom', 'a step begins'], ['… under a band', 'this program had no watch'],
    ].flatMap(([k, v]) => [element('dt', {}, [k]), element('dd', {}, [v])])),
    element('form', {method: 'dialog'}, [element('button', {}, ['Close'])]));
  $('help').showModal();
}

const pressed = {
  '/': () => $('filter').focus(), '?': help, t: toggleTable, x: toggleFamilies, 0: () => move(...whole()),
  '+': () => zoomBy(0.6), '=': () => zoomBy(0.6), '-': () => zoomBy(1 / 0.6), ' ': play, '[': () => faster(-1), ']': () => faster(1),
  ArrowLeft: () => move(state.from - (state.to - state.from) * 0.15, state.to - (state.to - state.from) * 0.15),
  ArrowRight: () => move(state.from + (state.to - state.from) * 0.15, state.to + (state.to - state.from) * 0.15),
  ArrowUp: () => { $('drawing').scrollTop -= 60; }, ArrowDown: () => { $('drawing').scrollTop += 60; },
  PageUp: () => { $('drawing').scrollTop -= $('drawing').clientHeight * 0.8; }, PageDown: () => { $('drawing').scrollTop += $('drawing').clientHeight * 0.8; },
  Escape: () => {
    if (state.cursor !== null) { state.cursor = null; state.playing = null; controls(); render(); } else if (state.chosen) choose(null); else setQuery('');
  },
};
for (const [key, kind] of Object.entries({n: 'any', w: 'write', c: 'conflict', e: 'failed', f: 'fault', s: 'stale'})) {
  pressed[key] = () => jump(kind, 1);
  pressed[key.toUpperCase()] = () => jump(kind, -1);
}

function setQuery(text) {
  state.query = text;
  $('filter').value = text;
  filter();
}

// The address holds the view: a link to it opens at the same moment.
function keepAddress() {
  const [least, most] = whole();
  const parts = state.all ? ['draw=all'] : [];
  const round = (ms) => +ms.toFixed(3);
  if (state.from > least || state.to < most) parts.push(`from=${round(state.from)}`, `to=${round(state.to)}`);
  if (state.query) parts.push('q=' + encodeURIComponent(state.query));
  if (state.chosen) parts.push('at=' + state.chosen);
  if (state.open.size) parts.push('open=' + [...state.open].map(encodeURIComponent).join(','));
  if (state.cursor !== null && !state.playing) parts.push(`time=${round(state.cursor)}`);
  if (state.speed !== 1) parts.push(`speed=${state.speed}`);
  const hash = parts.length ? '#' + parts.join('&') : '';
  if (hash !== location.hash && !state.playing) {
    clearTimeout(keepAddress.timer); // browsers limit how often it may change
    keepAddress.timer = setTimeout(() => history.replaceState(null, '', hash || location.pathname + location.search), 150);
  }
}

function readAddress() {
  const of = new Map(location.hash.slice(1).split('&').filter(Boolean).map((part) => {
    const i = part.indexOf('=');
    return [part.slice(0, i), part.slice(i + 1)];
  }));
  const decode = (text) => { try { return decodeURIComponent(text || ''); } catch { return ''; } };
  const from = parseFloat(of.get('from')), to = parseFloat(of.get('to'));
  state.query = decode(of.get('q'));
  state.all = of.get('draw') === 'all'; // see draw.js
  state.open = new Set((of.get('open') || '').split(',').filter(Boolean).map(decode));
  const cursor = parseFloat(of.get('time')), speed = parseFloat(of.get('speed'));
  state.cursor = Number.isFinite(cursor) ? cursor : null;
  state.speed = speeds.includes(speed) ? speed : 1;
  $('filter').value = state.query;
  filter();
  if (from < to) move(from, to); else move(...whole());
  const what = of.get('at');
  choose(what && /^[mevps]\d+(\.\d+)?$/.test(what) && exists(what) ? what : null, {reveal: Boolean(what)});
  controls();
}

// live follows a recording that grows, if the page came from "workshop view".
const live = {problem: ''};
function follow() {
  if (location.protocol === 'file:' || !document.documentElement.dataset.live) return;
  let asked = false, again = false;
  const ask = async () => {
    if (asked) { again = true; return; }
    asked = true;
    try {
      const response = await fetch('model');
      if (!response.ok) throw new Error(await response.text());
      const chosen = state.chosen;
      load(await response.json());
      if (chosen) describe(exists(chosen) ? chosen : null);
      syncZoom();
      live.problem = '';
    } catch (error) {
      live.problem = `The recording cannot be followed: ${error.message}`;
      render();
    }
    asked = false;
    if (again) { again = false; ask(); }
  };
  const source = new EventSource('changes');
  source.addEventListener('grown', ask);
  source.addEventListener('problem', (e) => { live.problem = e.data; render(); });
  source.onerror = () => { live.problem = 'workshop view has ended; the page no longer grows.'; render(); };
  source.onopen = () => { live.problem = ''; render(); };
}

function printed() {
  const width = 1100;
  const g = new SVGGraphics();
  printing = true;
  const wide = rowsOf(model, {shown, open: state.open, column: true});
  draw(g, model, index, wide, {...viewOf(width, wide.height), left: sizes.label, top: 0});
  printing = false;
  let box = $('print');
  if (!box) document.body.append(box = element('div', {id: 'print'}));
  const parsed = new DOMParser().parseFromString(g.svg(width, wide.height, model.title), 'image/svg+xml');
  box.replaceChildren(document.importNode(parsed.documentElement, true));
}

function start() {
  load(JSON.parse($('model').textContent));
  const canvas = $('canvas'), box = $('drawing');
  select(canvas).call(zoomer).on('dblclick.zoom', null);
  canvas.addEventListener('click', (e) => {
    const box = canvas.getBoundingClientRect();
    const found = at(e.clientX - box.left, e.clientY - box.top);
    if (found?.family) {
      if (!state.open.delete(found.family)) state.open.add(found.family);
      relayout();
    } else {
      choose(found?.what || null, {reveal: false});
    }
  });
  box.addEventListener('scroll', render);
  new ResizeObserver(() => { syncZoom(); relayout(); }).observe(box);
  dark.addEventListener('change', () => { bill.key = null; render(); });
  addEventListener('beforeprint', printed);
  addEventListener('hashchange', readAddress);
  $('filter').addEventListener('input', (e) => { state.query = e.target.value; filter(); });
  $('filter').addEventListener('keydown', (e) => {
    if (e.key === 'Escape' || e.key === 'Enter') { if (e.key === 'Escape') setQuery(''); box.focus(); e.stopPropagation(); }
  });
  document.addEventListener('keydown', (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.target === $('filter') || $('help').open) return;
    if (e.target instanceof HTMLButtonElement && (e.key === ' ' || e.key === 'Enter')) return;
    const action = pressed[e.key];
    if (action) { e.preventDefault(); action(); }
  });
  $('play').addEventListener('click', play);
  $('speed').addEventListener('click', () => { state.speed = speeds[(speeds.indexOf(state.speed) + 1) % speeds.length]; controls(); });
  $('fit').addEventListener('click', () => move(...whole()));
  $('in').addEventListener('click', () => zoomBy(0.6));
  $('out').addEventListener('click', () => zoomBy(1 / 0.6));
  $('table-button').addEventListener('click', toggleTable);
  $('help-button').addEventListener('click', help);
  for (const b of document.querySelectorAll('[data-jump]')) {
    b.addEventListener('click', (e) => jump(b.dataset.jump, e.shiftKey ? -1 : 1));
    const has = model.marks.some(jumps[b.dataset.jump]);
    b.disabled = !has && !document.documentElement.dataset.live;
  }
  readAddress();
  follow();
  box.focus();
}

start();
