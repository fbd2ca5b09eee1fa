// Pictures: the grid of layers, the treemap.

const LEFT = 4;
const FAINT = 0.15; // opacity outside of a search

// Args: the number of found rows before each row, or null; a row, or a range of rows.
const isKept = (sums, first, last = first + 1) => !sums || sums[last] > sums[first];

// Roles by layers. `choose(tensor, model)` is called with the index of a tensor.
class Grid {
  constructor(rows, choose) {
    this.rows = rows;
    this.choose = choose;
    this.canvas = byId("grid");
    this.model = rows.models[rows.diff ? 0 : 0];
    this.at = [0, 0];
    this.modes = rows.diff
      ? [["change", "Change"], ["rms1", "RMS after"], ["rms0", "RMS before"]]
      : [["rms0", "RMS"]];
    this.mode = this.modes[0][0];
    const layers = this.model.raw.layers;
    this.layers = layers;
    if (!layers.roles.length) return;
    byId("grid-section").hidden = false;
    this.prefix = commonPrefix(layers.roles);
    if (this.modes.length > 1) this.addModes();
    this.canvas.addEventListener("mousemove", (event) => this.hover(event));
    this.canvas.addEventListener("click", (event) => { if (this.hover(event)) this.enter(); });
    this.canvas.addEventListener("keydown", (event) => this.pressed(event));
    this.canvas.addEventListener("focus", () => this.tell());
    this.canvas.addEventListener("blur", () => this.draw());
  }

  addModes() {
    for (const [mode, text] of this.modes) {
      const button = element("button", "", text);
      button.type = "button";
      button.setAttribute("aria-pressed", String(mode === this.mode));
      button.addEventListener("click", () => {
        this.mode = mode;
        for (const one of byId("grid-modes").children) {
          one.setAttribute("aria-pressed", String(one === button));
        }
        this.draw();
      });
      byId("grid-modes").append(button);
    }
  }

  // Return the index of a tensor in the shown model, or null.
  tensorAt(row, column) {
    const found = this.layers.tensor[row] && this.layers.tensor[row][column];
    return found === undefined ? null : found;
  }

  valueAt(row, column) {
    const at = this.tensorAt(row, column);
    if (at === null) return undefined;
    if (this.mode === "rms0") return this.model.columns.log2_rms[at];
    const pair = this.rows.rowOf[0][at];
    if (this.mode === "change") return this.rows.diff.relative[pair];
    const other = this.rows.diff.b[pair];
    return other === null ? null : this.rows.models[1].columns.log2_rms[other];
  }

  colorOf(value) {
    if (typeof value !== "number") return theme("none");
    if (this.mode !== "change") return cssOf(this.ramp(value / 3));
    if (value === 0) return theme("neutral");
    return cssOf(viridis((Math.log10(value) + 5) / 6));
  }

  draw() {
    const { roles, indices } = this.layers;
    if (!roles.length) return;
    this.ramp = diverging();
    const width = byId("grid-box").clientWidth - 2;
    this.row = roles.length > 24 ? 15 : 19;
    const context = this.canvas.getContext("2d");
    context.font = MONO;
    const texts = roles.map((role) => role.slice(this.prefix.length).replaceAll("*.", "") || role);
    const widest = Math.max(...texts.slice(0, 400).map((text) => context.measureText(text).width));
    this.label = Math.min(widest + 10, width * (width < 500 ? 0.42 : 0.34));
    this.column = Math.max((width - this.label) / indices.length, 3);
    this.column = Math.min(this.column, 90);
    const all = this.label + this.column * indices.length;
    const drawn = sharp(this.canvas, Math.max(all, width), roles.length * this.row + 18);
    drawn.textBaseline = "middle";
    for (let row = 0; row < roles.length; row++) {
      const y = row * this.row;
      drawn.fillStyle = theme("text");
      drawn.font = MONO;
      drawn.fillText(fitted(drawn, texts[row], this.label - 8), LEFT - 4, y + this.row / 2);
      for (let column = 0; column < indices.length; column++) {
        const value = this.valueAt(row, column);
        if (value === undefined) continue;
        drawn.fillStyle = this.colorOf(value);
        drawn.globalAlpha = isKept(this.kept, this.rows.rowOf[0][this.tensorAt(row, column)]) ? 1 : FAINT;
        const gap = this.column > 8 ? 1 : 0;
        drawn.fillRect(this.label + column * this.column, y + 0.5, this.column - gap, this.row - 1);
        drawn.globalAlpha = 1;
        this.mark(drawn, row, column, y);
      }
    }
    drawn.font = SANS;
    drawn.fillStyle = theme("dim");
    drawn.textAlign = "center";
    const every = Math.ceil(26 / this.column);
    for (let column = 0; column < indices.length; column += every) {
      const x = this.label + (column + 0.5) * this.column;
      drawn.fillText(String(indices[column]), x, roles.length * this.row + 10);
    }
    if (document.activeElement === this.canvas) this.frame(drawn);
    this.describe();
    this.legend();
  }

  // A tensor with an error is marked by a diamond, as colours are not visible to everyone.
  mark(drawn, row, column, y) {
    const at = this.tensorAt(row, column);
    const level = this.rows.level(this.rows.rowOf[0][at]);
    if (level > 0 || this.column < 9) return;
    const x = this.label + (column + 0.5) * this.column;
    const middle = y + this.row / 2;
    drawn.fillStyle = theme("panel");
    drawn.strokeStyle = theme("text");
    drawn.beginPath();
    drawn.moveTo(x, middle - 4);
    drawn.lineTo(x + 4, middle);
    drawn.lineTo(x, middle + 4);
    drawn.lineTo(x - 4, middle);
    drawn.closePath();
    drawn.fill();
    drawn.stroke();
  }

  frame(drawn) {
    const [row, column] = this.at;
    drawn.strokeStyle = theme("accent");
    drawn.lineWidth = 2;
    drawn.strokeRect(this.label + column * this.column, row * this.row, this.column, this.row);
  }

  describe() {
    const what = this.mode === "change"
      ? "Layers: relative change"
      : "Layers: RMS beside the median of their kind";
    byId("grid-title").textContent = what;
    const { roles, indices } = this.layers;
    this.canvas.setAttribute("aria-label", `${what}: ${roles.length} roles by ${indices.length} ` +
      "layers. Arrow keys move from cell to cell and tell its value, Enter shows the tensor.");
  }

  legend() {
    const canvas = byId("grid-legend");
    const drawn = sharp(canvas, 230, 26);
    const isChange = this.mode === "change";
    for (let x = 0; x < 226; x++) {
      const part = x / 225;
      drawn.fillStyle = cssOf(isChange ? viridis(part) : this.ramp(part * 2 - 1));
      drawn.fillRect(x + 2, 0, 1.5, 8);
    }
    drawn.fillStyle = theme("dim");
    drawn.font = SANS;
    drawn.textBaseline = "top";
    const texts = isChange ? ["1e-5", "0.01", "10"] : ["1/8", "as its kind", "8 times"];
    drawn.fillText(texts[0], 2, 12);
    drawn.textAlign = "center";
    drawn.fillText(texts[1], 115, 12);
    drawn.textAlign = "right";
    drawn.fillText(texts[2], 228, 12);
    canvas.setAttribute("aria-label", `Colours from ${texts[0]} to ${texts[2]}`);
  }

  hover(event) {
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left - this.label) / this.column);
    const row = Math.floor((event.clientY - box.top) / this.row);
    if (row < 0 || column < 0 || this.tensorAt(row, column) === null) return false;
    this.at = [row, column];
    this.tell(false);
    return true;
  }

  tell(draws = true) {
    const [row, column] = this.at;
    const at = this.tensorAt(row, column);
    const value = this.valueAt(row, column);
    let text = at === null ? "no tensor" : this.model.names[at];
    if (at !== null && typeof value === "number") {
      text += this.mode === "change"
        ? `: changed by ${numberText(value)}`
        : `: RMS is ${numberText(2 ** value, 3)} times the median`;
    }
    byId("grid-status").textContent = text;
    if (draws) this.draw();
  }

  pressed(event) {
    const steps = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] };
    if (event.key === "Enter" || event.key === " ") this.enter();
    else if (event.key in steps) {
      const [down, right] = steps[event.key];
      const { roles, indices } = this.layers;
      this.at = [
        Math.min(Math.max(this.at[0] + down, 0), roles.length - 1),
        Math.min(Math.max(this.at[1] + right, 0), indices.length - 1),
      ];
      this.tell();
    } else return;
    event.preventDefault();
  }

  enter() {
    const at = this.tensorAt(...this.at);
    if (at !== null) this.choose(this.rows.rowOf[0][at]);
  }
}

// Return the common prefix of all roles.
function commonPrefix(roles) {
  let prefix = roles[0] || "";
  for (const role of roles) while (!role.startsWith(prefix)) prefix = prefix.slice(0, -1);
  return prefix.slice(0, prefix.lastIndexOf(".") + 1);
}

// --- The treemap ----------------------------------------------------------------------------

// Rectangles as square as possible (squarified treemap); items are sorted by size, falling.
function squarified(items, x, y, width, height) {
  const placed = [];
  let total = items.reduce((sum, item) => sum + item.nbytes, 0);
  let at = 0;
  while (at < items.length && total > 0 && width > 0 && height > 0) {
    const side = Math.min(width, height);
    const scale = (width * height) / total;
    let sum = 0;
    let end = at;
    let worst = Infinity;
    while (end < items.length) {
      const next = sum + items[end].nbytes * scale;
      const largest = items[at].nbytes * scale;
      const least = items[end].nbytes * scale;
      const ratio = Math.max((side * side * largest) / (next * next), (next * next) / (side * side * least));
      if (ratio > worst) break;
      worst = ratio;
      sum = next;
      end++;
    }
    const thick = sum / side;
    let along = 0;
    for (; at < end; at++) {
      const length = (items[at].nbytes * scale) / thick;
      placed.push(width >= height
        ? [items[at], x, y + along, thick, length]
        : [items[at], x + along, y, length, thick]);
      along += length;
      total -= items[at].nbytes;
    }
    if (width >= height) { x += thick; width -= thick; } else { y += thick; height -= thick; }
  }
  return placed;
}

class Treemap {
  constructor(rows, choose) {
    Object.assign(this, { rows, choose, canvas: byId("map"), boxes: [], at: 0, kept: null });
    this.colors();
    this.canvas.addEventListener("mousemove", (event) => this.hover(event));
    this.canvas.addEventListener("click", (event) => { if (this.hover(event)) this.enter(); });
    this.canvas.addEventListener("keydown", (event) => this.pressed(event));
  }

  // The quantities that colours can show: the type, and known numbers of this model.
  colors() {
    const { models, diff } = this.rows;
    const { columns, raw: { layers } } = models[0];
    this.layer = new Map();
    layers.tensor.forEach((line) => line.forEach((at, layer) => { if (at !== null) this.layer.set(at, layer); }));
    const known = { type: "type" };
    if (columns.log2_rms.some((one) => typeof one === "number")) known.rms = "RMS beside its kind";
    if (diff) known.change = "relative change";
    if (layers.indices.length > 1) known.layer = "layer";
    const select = byId("map-color").querySelector("select");
    for (const [key, text] of Object.entries(known)) {
      const option = element("option", "", text);
      option.value = key;
      select.append(option);
    }
    select.addEventListener("change", () => this.draw(this.range));
    this.select = select;
  }

  // Return the number for a node's colour: the largest of its tensors.
  valueOf(node, key) {
    const { diff, models } = this.rows;
    let found = null;
    for (let row = node.first; row < Math.min(node.last, node.first + 500); row++) {
      let value = null;
      if (key === "change") value = diff.relative[row];
      else {
        const [number, at] = this.rows.places(row)[0];
        if (number === 0) value = key === "rms" ? models[0].columns.log2_rms[at] : this.layer.get(at);
      }
      if (typeof value !== "number") continue;
      if (found === null || Math.abs(value) > Math.abs(found)) found = value;
    }
    return found;
  }

  colorOf(node) {
    const key = this.select.value;
    if (key === "type") {
      const [model, at] = this.rows.first(node.first);
      return rgbOf(typeColor(model.columns.type[at]));
    }
    const value = this.valueOf(node, key);
    if (value === null) return rgbOf(theme("none"));
    if (key === "rms") return this.ramp(value / 3);
    if (key === "layer") return viridis(value / (this.rows.models[0].raw.layers.indices.length - 1));
    return value === 0 ? rgbOf(theme("neutral")) : viridis((Math.log10(value) + 5) / 6);
  }

  draw(range) {
    const width = byId("map-box").clientWidth;
    if (!width) return;
    this.range = range;
    const context = (this.context = sharp(this.canvas, width, 460));
    this.boxes = [];
    this.place(childrenOf(this.rows, range.first, range.last, range.depth), 0, 0, width, 460, 0);
    context.textBaseline = "top";
    const named = this.boxes.slice(0, 500).map((one) => this.rows.names[one.node.first]);
    const prefix = commonPrefix(named);
    this.ramp = diverging();
    for (const { node, x, y, width: w, height: h } of this.boxes) {
      const color = this.colorOf(node);
      context.globalAlpha = isKept(this.kept, node.first, node.last) ? 1 : FAINT;
      context.fillStyle = cssOf(color);
      context.fillRect(x + 0.5, y + 0.5, Math.max(w - 1, 0.3), Math.max(h - 1, 0.3));
      if (w < 40 || h < 16) continue;
      const light = color[0] * 0.3 + color[1] * 0.59 + color[2] * 0.11;
      const isFaint = context.globalAlpha < 1;
      context.globalAlpha = 1;
      context.fillStyle = isFaint ? theme("dim") : light > 120 ? "#000" : "#fff";
      context.font = MONO;
      const name = node.leaf ? this.rows.names[node.first].slice(prefix.length) : node.text;
      const lines = Math.min(Math.floor((h - 4) / 14), 3);
      inLines(context, name, w - 8, lines).forEach((line, i) => {
        context.fillText(line, x + 4, y + 3 + i * 14);
      });
    }
    context.globalAlpha = 1;
    this.canvas.setAttribute("aria-label", `Bytes of ${this.boxes.length} tensors or groups as ` +
      `areas, coloured by ${this.select.selectedOptions[0].text}. Arrow keys go through them by size, Enter shows one.`);
  }

  place(nodes, x, y, width, height, level) {
    const items = nodes.filter((node) => node.nbytes > 0).sort((a, b) => b.nbytes - a.nbytes);
    for (const [node, left, top, w, h] of squarified(items, x, y, width, height)) {
      if (!node.leaf && w * h > 1500 && level < 12 && this.boxes.length < 4000) {
        const inner = w > 60 && h > 40 ? 1.5 : 0;
        const children = childrenOf(this.rows, node.first, node.last, node.depth + 1);
        if (children.length) {
          this.place(children, left + inner, top + inner, w - 2 * inner, h - 2 * inner, level + 1);
          continue;
        }
      }
      this.boxes.push({ node, x: left, y: top, width: w, height: h });
    }
  }

  hover(event) {
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const found = this.boxes.findIndex((one) =>
      x >= one.x && x < one.x + one.width && y >= one.y && y < one.y + one.height);
    if (found < 0) return false;
    this.at = found;
    this.tell();
    return true;
  }

  tell() {
    const { node } = this.boxes[this.at];
    const more = node.leaf ? "" : ` and ${node.last - node.first - 1} more`;
    byId("map-status").textContent = `${this.rows.names[node.first]}${more}: ${sizeText(node.nbytes)}${this.said(node)}`;
  }

  // Describe the number behind the colour.
  said(node) {
    const key = this.select.value;
    const value = key === "type" ? null : this.valueOf(node, key);
    if (value === null) return "";
    if (key === "rms") return `; RMS is ${numberText(2 ** value, 3)} times the median`;
    return key === "layer" ? `; layer ${this.rows.models[0].raw.layers.indices[value]}` : `; changed by ${numberText(value)}`;
  }

  pressed(event) {
    const steps = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 };
    if (!this.boxes.length) return;
    if (event.key === "Enter" || event.key === " ") this.enter();
    else if (event.key in steps) {
      const order = this.boxes.map((_, at) => at).sort((a, b) => this.boxes[b].node.nbytes - this.boxes[a].node.nbytes);
      const next = order.indexOf(this.at) + steps[event.key];
      this.at = order[Math.min(Math.max(next, 0), order.length - 1)];
      this.tell();
    } else return;
    event.preventDefault();
  }

  enter() { this.choose(this.boxes[this.at].node); }
}
