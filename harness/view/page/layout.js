// Where everything is drawn: rows from top to bottom, time from left to right.

export const sizes = {head: 24, group: 22, marks: 13, band: 15, told: 9, gap: 8, label: 210, name: 13, steps: 18, series: 30};

// rowsOf returns the rows of a model: the steps, the processes, and the metrics, if it has any; then a head for each resource, and below it
// a row for each object or family of objects.
// shown is what a filter shows; open has the families whose objects have a row each.
// Without a column for names, each row has its name above it.
export function rowsOf(model, {shown, open, column}) {
  const rows = [];
  const top = sizes.marks + (column ? 0 : sizes.name);
  let y = sizes.head;
  const add = (row, height) => { rows.push({...row, y, height}); y += height; };
  const name = column ? 0 : sizes.name;
  if (model.steps) add({kind: 'steps', lanes: []}, sizes.steps);
  const rowsOfPrograms = (label, all, row) => {
    const parts = (all || []).map((part, i) => [part, i]).filter(([part]) => shown.programs[part.program]);
    if (parts.length) add({kind: 'group', label, lanes: []}, sizes.group);
    for (const [part, i] of parts) row(part, i);
  };
  rowsOfPrograms('processes', model.processes, (p, i) => add({kind: 'process', label: processName(model, p), process: i, lanes: []},
    name + sizes.band + (p.leads ? sizes.told : 0) + sizes.gap));
  rowsOfPrograms('metrics', model.series, (s, i) => add({kind: 'series', label: seriesName(model, s), series: i, lanes: []}, name + sizes.series + sizes.gap));
  let resource = null;
  let family = null;
  model.lanes.forEach((lane, i) => {
    if (!shown.lanes[i]) return;
    if (lane.resource !== resource) {
      resource = lane.resource;
      family = null;
      add({kind: 'group', label: resource || 'requests for no resource', lanes: []}, sizes.group);
    }
    if (lane.family && !open.has(lane.resource + ' ' + lane.family)) {
      if (family && family.family === lane.family) {
        family.lanes.push(i);
        return;
      }
      add({kind: 'family', label: lane.family, family: lane.family, key: lane.resource + ' ' + lane.family, lanes: [i]},
        top + sizes.band + sizes.told + sizes.gap);
      family = rows[rows.length - 1];
      return;
    }
    family = null;
    const told = (lane.told || []).filter((t) => shown.programs[t.program]);
    const band = lane.versions ? sizes.band : 0;
    const member = lane.family ? lane.resource + ' ' + lane.family : '';
    add({kind: 'lane', label: lane.name || 'all', key: member, lanes: [i], told}, top + band + told.length * sizes.told + sizes.gap);
  });
  return {rows, height: y + sizes.gap};
}

const outcomes = ['read', 'wrote', 'no-op', 'conflict', 'missing', 'refused', 'lost', 'gave up', 'open'];

// processName names a process, or what belongs to one, with its number if there are several of the program.
export function processName(model, p) {
  return (p.any ? 'any ' : '') + model.programs[p.program] + (p.number ? ` (${p.number})` : '');
}

export function seriesName(model, s) {
  const isOnly = model.series.every((other) => other.program === s.program);
  return [s.metric, s.of, isOnly ? '' : model.programs[s.program]].filter(Boolean).join(' ');
}

// index returns the marks and events of each lane, in the order of time.
export function index(model) {
  const marks = model.lanes.map(() => []);
  model.marks.forEach((m, i) => marks[m.lane].push(i));
  const longest = marks.map((of) => of.reduce((most, i) => Math.max(most, model.marks[i].end - model.marks[i].start), 0));
  const reactions = new Map(); // from an event to the marks that it may have caused
  model.marks.forEach((m, i) => {
    for (const e of m.cause?.events || []) {
      if (!reactions.has(e)) reactions.set(e, []);
      reactions.get(e).push(i);
    }
  });
  const told = new Map(); // from a lane and version to its events
  model.events.forEach((e, i) => {
    const key = e.lane + ' ' + e.version;
    if (!told.has(key)) told.set(key, []);
    told.get(key).push(i);
  });
  const tries = new Map(); // from a failed mark to those that tried again
  model.marks.forEach((m, i) => { if (m.cause?.rule === 'retry') tries.set(m.cause.mark, i); });
  // A number for what a mark looks like: marks that look alike, in one place, are drawn once.
  const looks = model.marks.map((m) => (((outcomes.indexOf(m.outcome) * 64 + m.program % 64) * 2 + (m.fault ? 1 : 0)) * 2 + (m.stale ? 1 : 0)) * 2 + (m.differs ? 1 : 0));
  const active = new Set([...model.marks.map((m) => m.program), ...model.events.map((e) => e.program)]);
  return {marks, longest, reactions, told, tries, looks, active};
}

// firstAtOrAfter returns the first position of a sorted array at which value(item) is not less than a limit.
export function firstAtOrAfter(sorted, limit, value) {
  let from = 0, to = sorted.length;
  while (from < to) {
    const middle = (from + to) >> 1;
    if (value(sorted[middle]) < limit) from = middle + 1; else to = middle;
  }
  return from;
}
