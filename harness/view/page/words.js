// What is said about the parts of a model: the same to those who see the drawing and to those who hear it.

import {exactly as time} from './draw.js';
import {processName} from './layout.js';

const outcomes = {
  read: 'answered', wrote: 'changed it', 'no-op': 'changed nothing', conflict: 'conflict', missing: 'not found', refused: 'refused',
  lost: 'no whole answer', 'gave up': 'the client gave up', open: 'still open',
};

const rules = {
  retry: 'It tried again: its last request for this object had failed, and no event about it had come since.',
  object: 'The last event about this object that it had been told of since its last write to it.',
  list: 'It had just listed the resource, and no event had come since.',
  anything: 'No event about this object had come since its last write to it. These had come, about others, since its last write:',
  nothing: 'Nothing in the recording explains it: since its last write, it had been told nothing. It may be a timer, or a person.',
};

export function nameOf(model, lane) {
  const l = model.lanes[lane];
  return [l.resource, l.name].filter(Boolean).join(' ');
}

// senderOf names the process that sent a request, as far as it is known.
export function senderOf(model, m) { return processName(model, m); }

export function toldName(model, t) { return processName(model, t); }

// whatOf names what a request was for: its resource and subresource, and the object; or the path, if that is no resource.
export function whatOf(model, m) { return [m.what, model.lanes[m.lane].name].filter(Boolean).join(' '); }

export function outcomeOf(m) {
  return outcomes[m.outcome] + (m.status ? `, ${m.status}` : '');
}

// sentence says what a request was.
export function sentence(model, m) {
  return `${senderOf(model, m)}: ${m.verb} ${whatOf(model, m)} (${outcomeOf(m)})`;
}

export function version(rv) { return rv ? 'version ' + rv : 'no version'; }

export function ruleOf(m) { return rules[m.cause.rule]; }

export function eventSentence(model, e) {
  const lag = e.told - e.came;
  const v = e.version >= 0 ? model.lanes[e.lane].versions[e.version] : null;
  return `${model.programs[e.program]} was told at ${time(e.told)}: ${e.type} ${nameOf(model, e.lane)}` +
    (v ? ` at ${version(v.rv)}` : '') + (v?.changed ? `, ${v.changed}` : '') + (lag > 0 ? `, held back for ${time(lag)}` : '');
}

export function versionSentence(model, lane, n) {
  const v = model.lanes[lane].versions[n];
  const who = v.mark < 0 ? 'somebody whose requests are not in the recording' : model.programs[model.marks[v.mark].program];
  if (v.gone) return `deleted by ${who}, ${v.late ? 'no later than' : 'at'} ${time(v.from)}`;
  return `${version(v.rv)}, written by ${who}, ${v.late ? 'no later than' : 'at'} ${time(v.from)}` +
    (v.created ? ', created' : '') + (v.deleting ? ', being deleted' : '') + (v.changed ? ': ' + v.changed : '');
}

const states = {running: 'runs', frozen: 'is frozen', stopping: 'has been told to stop', ended: 'has ended', killed: 'has been killed'};

export function stateSentence(model, i, n) {
  const p = model.processes[i], s = p.states[n];
  return `${processName(model, p)} ${states[s.is] || s.is}, from ${time(s.from)} to ${time(s.to)}`;
}

export function leadSentence(model, i, l) {
  return `${processName(model, model.processes[i])} was the last to write the Lease ${model.lanes[l.lane].name}, from ${time(l.from)} to ${time(l.to)}`;
}

export function stepSentence(s) { return `Step: ${s.name}, at ${time(s.at)}`; }

export function kilobytes(bytes) { return (bytes / 1000).toFixed(1); }
