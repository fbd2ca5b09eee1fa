"use strict";
// The packed document: blocks to values, columns to tensors. Names are data and only
// become text: never markup, and never keys of objects.

const byId = (id) => document.getElementById(id);

function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

async function unpacked(id) {
  const block = byId(id);
  if (!block) return null;
  const text = atob(block.textContent);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

const pause = () => new Promise((resolve) => setTimeout(resolve, 0));

// --- Numbers --------------------------------------------------------------------------------

const UNITS = ["kB", "MB", "GB", "TB", "PB", "EB"];

function sizeText(nbytes) {
  let amount = Number(nbytes);
  if (amount < 1000) return amount + " B";
  let unit = -1;
  do { amount /= 1000; unit++; } while (amount >= 999.95 && unit < UNITS.length - 1);
  return amount.toFixed(1) + " " + UNITS[unit];
}

// The browser's formatter loads a table of languages first, which is slow.
const grouped = (whole) => String(whole).replace(/\B(?=(\d{3})+$)/g, ",");

function countText(count) {
  let amount = Number(count);
  if (amount < 1e5) return grouped(amount);
  for (const unit of ["k", "M", "B", "T"]) {
    amount /= 1000;
    if (amount < 999.95 || unit === "T") return amount.toFixed(1) + " " + unit;
  }
  return "";
}

function numberText(value, digits = 4) {
  if (value === null || value === undefined) return "\u2013";
  if (typeof value === "string") return value;
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e9) return grouped(value);
  if (size >= 1e5 || size < 1e-4) {
    return value.toExponential(digits - 2).replace(/\.?0+e/, "e").replace("e+", "e");
  }
  return String(Number(value.toPrecision(digits)));
}

const shapeText = (shape) => (shape.length ? shape.join("\u00d7") : "scalar");

// Return a name to show; a placeholder if it is empty or blank.
function nameText(name, most = Infinity) {
  if (!name.trim()) return name ? "(blank name)" : "(empty name)";
  if (name.length <= most) return name;
  return name.slice(0, most / 2) + "\u2026" + name.slice(1 - most / 2);
}

// Return a name with line breaks allowed after dots, slashes and underscores.
function breakable(name, className = "") {
  const box = element("span", className);
  name.split(/(?<=[./_:])(?=[^./_:])/).forEach((part, at) => {
    if (at) box.append(element("wbr"));
    box.append(part);
  });
  return box;
}

// Four hexadecimal digits of a name, so that a link detects another file.
function nameHash(name) {
  let hash = 0x811c9dc5;
  for (let i = 0; i < name.length; i++) {
    hash = Math.imul(hash ^ name.charCodeAt(i), 0x01000193) >>> 0;
  }
  return ((hash >>> 16) ^ (hash & 0xffff)).toString(16).padStart(4, "0");
}

// --- Models ---------------------------------------------------------------------------------

function namesOf(shared, rest) {
  const pieces = rest.split("\n");
  const names = new Array(shared.length);
  let before = "";
  for (let i = 0; i < shared.length; i++) {
    before = names[i] = before.slice(0, shared[i]) + pieces[i];
  }
  return names;
}

class Model {
  constructor(raw, number, chunk, live) {
    Object.assign(this, { raw, number, chunk, live, count: raw.object_count });
    const columns = raw.tensors;
    this.names = namesOf(columns.shared, columns.rest);
    this.columns = columns;
    this.nbytes = new Float64Array(columns.nbytes); // numbers, or texts beyond 2^53
    this.elements = columns.shapes.map((shape) => shape.reduce((a, b) => a * b, 1));
    this.shapeTexts = columns.shapes.map(shapeText);
    this.findings = new Map(); // by tensor
    this.chunks = new Map();
  }

  typeOf(at) { return this.columns.types[this.columns.type[at]]; }
  shapeOf(at) { return this.columns.shapes[this.columns.shape[at]]; }
  shapeTextOf(at) { return this.shapeTexts[this.columns.shape[at]]; }
  elementsOf(at) { return this.elements[this.columns.shape[at]]; }

  // Return the details of a tensor; null if the page lacks them.
  async detail(at, signal) {
    if (this.live) return this.asked(at, signal);
    const chunk = Math.floor(at / this.chunk);
    if (!this.chunks.has(chunk)) {
      this.chunks.set(chunk, unpacked(`detail-${this.number}-${chunk}`));
    }
    const found = await this.chunks.get(chunk);
    return (found && found[at]) || null;
  }

  // Keep the most recently used ones.
  async asked(at, signal) {
    let found = this.chunks.get(at);
    if (!found) {
      found = await ask(`tensor/${this.number}/${at}`, signal);
      if (this.chunks.size > 100) this.chunks.delete(this.chunks.keys().next().value);
      this.chunks.set(at, found);
      for (const key of ["rms", "crest"]) this.columns[key][at] = found.detail[key];
      if (found.findings && found.findings.length) this.findings.set(at, found.findings.map((one) => ({ ...one, model: this.number, tensor: at })));
    }
    return found.detail;
  }
}

// --- Rows: the tensors of one model, or the pairs of two ------------------------------------

class Rows {
  constructor(models, diff) {
    this.models = models;
    this.live = models[0].live;
    this.diff = diff || null;
    this.count = diff ? diff.a.length : models[0].count;
    this.names = diff
      ? diff.a.map((a, row) => (a === null ? models[1].names[diff.b[row]] : models[0].names[a]))
      : models[0].names;
    this.rowOf = models.map((model) => new Int32Array(model.count).fill(-1));
    for (let row = 0; row < this.count; row++) {
      if (!diff) { this.rowOf[0][row] = row; continue; }
      if (diff.a[row] !== null) this.rowOf[0][diff.a[row]] = row;
      if (diff.b[row] !== null) this.rowOf[1][diff.b[row]] = row;
    }
    this.lower = null;
    const sums = (this.sums = new Float64Array(this.count + 1));
    for (let row = 0; row < this.count; row++) sums[row + 1] = sums[row] + this.nbytes(row);
  }

  // Request the differences of the two tensors of a row.
  async pair(row, signal) {
    if (this.diff.kind[row] !== "not looked at") return;
    const found = await ask(`pair/${row}`, signal);
    for (const [key, value] of Object.entries(found)) this.diff[key][row] = value;
  }

  // Return the model and the index of each tensor of a row.
  places(row) {
    if (!this.diff) return [[0, row]];
    const found = [];
    if (this.diff.a[row] !== null) found.push([0, this.diff.a[row]]);
    if (this.diff.b[row] !== null) found.push([1, this.diff.b[row]]);
    return found;
  }

  first(row) {
    const [number, at] = this.places(row)[0];
    return [this.models[number], at];
  }

  nbytes(row) {
    if (!this.diff) return this.models[0].nbytes[row];
    const [model, at] = this.first(row);
    return model.nbytes[at];
  }

  level(row) {
    let worst = 3;
    for (const [number, at] of this.places(row)) {
      for (const one of this.models[number].findings.get(at) || []) {
        worst = Math.min(worst, LEVELS.indexOf(one.level));
      }
    }
    return worst;
  }

  lowered() {
    this.lower = this.lower || this.names.map((name) => name.toLowerCase());
    return this.lower;
  }
}

const LEVELS = ["error", "warn", "info"];
const LEVEL_WORDS = { error: "error", warn: "warning", info: "note" };

// --- The tree: ranges of rows, found when a node is opened ----------------------------------

const SEPARATOR = /::|[./]/g;
const DEEPEST = 64;

// Return the end of each part of a name, and the start of the next.
function cutsOf(name) {
  const cuts = [];
  SEPARATOR.lastIndex = 0;
  let match;
  while (cuts.length < DEEPEST - 1 && (match = SEPARATOR.exec(name))) {
    cuts.push([match.index, match.index + match[0].length]);
  }
  return cuts;
}

function partOf(name, depth) {
  const cuts = cutsOf(name);
  if (depth > cuts.length) return null;
  const begin = depth ? cuts[depth - 1][1] : 0;
  return name.slice(begin, depth < cuts.length ? cuts[depth][0] : undefined);
}

// Return the nodes below a range of rows that agree in all parts before `depth`.
function childrenOf(rows, first, last, depth) {
  const nodes = [];
  let at = first;
  while (at < last) {
    const part = partOf(rows.names[at], depth);
    if (part === null) { at++; continue; } // the parent itself
    let step = 1; // gallop to the end of this part, then halve
    let low = at;
    let high = at + 1;
    while (high < last && partOf(rows.names[high], depth) === part) {
      low = high;
      step *= 2;
      high = Math.min(at + step, last);
    }
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (partOf(rows.names[middle], depth) === part) low = middle; else high = middle;
    }
    nodes.push(nodeOf(rows, at, high, depth, part));
    at = high;
  }
  return nodes;
}

// A node with one child is merged with it, as in `model.layers`.
function nodeOf(rows, first, last, depth, part) {
  const node = { first, last, depth, text: part, open: false, children: null };
  for (;;) {
    const name = rows.names[first];
    const next = partOf(name, node.depth + 1);
    if (next === null || node.depth + 2 >= DEEPEST) break;
    if (partOf(rows.names[last - 1], node.depth + 1) !== next) break;
    const cut = cutsOf(name)[node.depth];
    node.text += name.slice(cut[0], cut[1]) + next;
    node.depth++;
  }
  node.nbytes = rows.sums[last] - rows.sums[first];
  node.leaf = last - first === 1 && partOf(rows.names[first], node.depth + 1) === null;
  return node;
}
