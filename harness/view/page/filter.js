// The filter: words, all of which must match. "resource:pods", "object:web", "program:loop", "verb:patch", "told:loop", "failed", "no-op", "stale", "fault";
// any other word is looked for in the names of objects, resources and programs.

const keys = ['resource', 'object', 'program', 'verb', 'told'];

export function parse(text) {
  return text.trim().split(/\s+/).filter(Boolean).map((word) => {
    const [, key, value] = word.match(/^([a-z]+):(.*)$/i) || [];
    if (key && keys.includes(key)) return {key, value: value.toLowerCase()};
    return {key: 'word', value: word.toLowerCase()};
  });
}

const failures = new Set(['conflict', 'refused', 'lost', 'gave up', 'missing']);

// isFailure leaves out that somebody asked for what is not there: many do, to find that out.
export function isFailure(m) { return failures.has(m.outcome) && !(m.outcome === 'missing' && ['get', 'list', 'watch'].includes(m.verb)); }

export function isWrite(m) { return !['get', 'list', 'watch'].includes(m.verb) && m.outcome !== 'no-op'; }

// kinds are the words that choose requests by what became of them.
const kinds = {
  failed: isFailure, 'no-op': (m) => m.outcome === 'no-op', conflict: (m) => m.outcome === 'conflict',
  stale: (m) => Boolean(m.stale), fault: (m) => Boolean(m.fault), write: isWrite,
};

// apply returns which marks, lanes and programs a filter shows. A lane is shown if its name matches and, if words choose requests, it has
// one. If words name programs, only what these have been told is shown, and only their processes; "told:" does nothing else.
export function apply(model, words) {
  const ofMarks = words.filter((w) => w.key === 'program' || w.key === 'verb' || w.key === 'word' && kinds[w.value]);
  const ofLanes = words.filter((w) => !ofMarks.includes(w) && w.key !== 'told');
  const lane = (l) => ofLanes.every((w) => {
    const resource = l.resource.toLowerCase(), name = l.name.toLowerCase();
    if (w.key === 'resource') return resource.startsWith(w.value);
    if (w.key === 'object') return name.includes(w.value);
    return resource.includes(w.value) || name.includes(w.value) || (l.told || []).some((t) => model.programs[t.program].toLowerCase().includes(w.value));
  });
  const mark = (m) => ofMarks.every((w) => {
    if (w.key === 'program') return isProgram(model, m.program, w.value);
    if (w.key === 'verb') return m.verb === w.value;
    return kinds[w.value](m);
  });
  const lanes = model.lanes.map(lane);
  const marks = model.marks.map((m) => lanes[m.lane] && mark(m));
  if (ofMarks.length) {
    const has = new Set();
    marks.forEach((shown, i) => { if (shown) has.add(model.marks[i].lane); });
    lanes.forEach((shown, i) => { lanes[i] = shown && has.has(i); });
  }
  const named = words.filter((w) => w.key === 'program' || w.key === 'told');
  const programs = model.programs.map((_, i) => named.every((w) => isProgram(model, i, w.value)));
  return {lanes, marks, programs};
}

// isProgram says whether a word names a program: whole, if one is called so, and otherwise its beginning.
function isProgram(model, program, word) {
  const name = model.programs[program].toLowerCase();
  return name === word || name.startsWith(word) && !model.programs.some((other) => other.toLowerCase() === word);
}
