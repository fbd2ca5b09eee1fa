// The map of a tensor's rows and columns, and the form that selects a part of it. Without a server a
// part is cut out of the tiles of the page; with a server it is computed at full resolution.

function levelsOf(heat) {
  const packed = atob(heat.data);
  const levels = new Uint8Array(heat.shape[0] * heat.shape[1]);
  for (let at = 0; at < levels.length; at++) {
    const byte = packed.charCodeAt(at >> 1);
    levels[at] = at % 2 ? byte & 15 : byte >> 4;
  }
  return levels;
}

// Return the index of the part, of `parts` equal parts of `count`, that contains a number.
const firstPart = (number, count, parts) => Math.floor((number * parts) / count);
const endPart = (number, count, parts) => Math.max(Math.ceil((number * parts) / count), 1);

function pictureOf(detail, cut) {
  const { heat, row_norms: rows, column_norms: columns } = detail;
  const [high, wide] = heat.shape;
  const [top, bottom, left, right] = cut || [0, rows.count, 0, columns.count];
  const [y0, y1] = [firstPart(top, rows.count, high), endPart(bottom, rows.count, high)];
  const [x0, x1] = [firstPart(left, columns.count, wide), endPart(right, columns.count, wide)];
  const whole = levelsOf(heat);
  const levels = new Uint8Array((y1 - y0) * (x1 - x0));
  for (let y = y0; y < y1; y++) levels.set(whole.subarray(y * wide + x0, y * wide + x1), (y - y0) * (x1 - x0));
  const strip = (norms, from, to) => norms.strip.slice(
    firstPart(from, norms.count, norms.strip.length), endPart(to, norms.count, norms.strip.length));
  return {
    levels, high: y1 - y0, wide: x1 - x0, scale: heat.scale,
    rows: strip(rows, top, bottom), columns: strip(columns, left, right),
  };
}

class SliceView {
  // Args: the detail of a tensor; its shape; the request path of a server, or null; the abort signal;
  // the elements after the title.
  constructor(detail, shape, path, signal, title) {
    Object.assign(this, { detail, shape, path, signal });
    this.section = element("section", "map");
    this.title = element("h3");
    this.of = title;
    this.section.append(this.title);
    this.canvas = element("canvas");
    this.canvas.setAttribute("role", "img");
    this.canvas.tabIndex = 0;
    this.canvas.addEventListener("mousemove", (event) => this.hover(event));
    this.canvas.addEventListener("keydown", (event) => this.pressed(event));
    this.ends = element("div", "ends");
    this.status = element("p", "note");
    this.status.setAttribute("aria-live", "polite");
    this.notes = element("div");
    this.at = [0, 0];
    this.section.append(this.form(), this.canvas, this.ends, this.status, this.notes);
    this.show(detail, null);
  }

  // --- What is chosen -------------------------------------------------------------------------

  form() {
    const form = element("form", "slice");
    this.axes = [0, this.shape.length - 1];
    this.free = this.path && this.shape.length > 2;
    form.addEventListener("submit", (event) => { event.preventDefault(); this.choose(); });
    form.addEventListener("change", () => this.choose());
    const number = (label, value, most) => {
      const input = element("input");
      input.type = "number";
      input.min = 0;
      input.max = most;
      input.value = value;
      input.setAttribute("aria-label", label);
      return input;
    };
    const group = (label, ...inputs) => {
      const box = element("span");
      box.append(element("span", "note", label), ...inputs);
      form.append(box);
      return box;
    };
    const extent = () => this.extent();
    const [rows, columns] = extent();
    this.bounds = [number("first row", 0, rows), number("end of rows", rows, rows),
      number("first column", 0, columns), number("end of columns", columns, columns)];
    if (this.free) {
      const choice = (label, at) => {
        const select = element("select");
        select.setAttribute("aria-label", label);
        this.shape.forEach((length, axis) => {
          const option = element("option", "", `axis ${axis} (${length})`);
          option.value = axis;
          select.append(option);
        });
        select.value = at;
        select.addEventListener("change", () => this.refit());
        return select;
      };
      this.selects = [choice("axis of rows", 0), choice("axis of columns", this.shape.length - 1)];
      group("rows along", this.selects[0]);
      group("columns along", this.selects[1]);
    }
    group("rows", this.bounds[0], "\u2013", this.bounds[1]);
    group("columns", this.bounds[2], "\u2013", this.bounds[3]);
    this.places = this.shape.map((length, axis) => {
      if (this.shape.length < 3 || (!this.free && axis !== 1)) return null;
      const input = number(`place on axis ${axis}`, this.free ? 0 : "", length - 1);
      if (!this.free) input.placeholder = "all";
      input.parent = group(`axis ${axis} at`, input);
      return input;
    });
    const whole = element("button", "quiet", "Whole");
    whole.type = "button";
    whole.addEventListener("click", () => this.reset());
    form.append(whole);
    this.error = element("p", "note");
    this.error.setAttribute("role", "status");
    form.append(this.error);
    if (this.free) this.hideUsed();
    return form;
  }

  // Return the numbers of rows and columns.
  extent() {
    const { row_norms: rows, column_norms: columns } = this.detail;
    if (!this.free) return [rows.count, columns.count];
    return this.axes.map((axis) => this.shape[axis]);
  }

  refit() {
    const [rows, columns] = this.selects.map((select) => Number(select.value));
    if (rows === columns) return;
    this.axes = [rows, columns];
    this.hideUsed();
    const extent = this.extent();
    this.bounds.forEach((input, at) => {
      input.max = extent[at >> 1];
      input.value = at % 2 ? extent[at >> 1] : 0;
    });
  }

  hideUsed() {
    this.places.forEach((input, axis) => { input.parent.hidden = this.axes.includes(axis); });
  }

  // Earlier requests are aborted: their answers would overwrite the current status.
  leave() {
    if (this.control) this.control.abort();
    this.error.textContent = "";
  }

  reset() {
    this.leave();
    if (this.free) {
      this.selects[0].value = 0;
      this.selects[1].value = this.shape.length - 1;
      this.refit();
    }
    for (const input of this.places) if (input) input.value = this.free ? 0 : "";
    const extent = this.extent();
    this.bounds.forEach((input, at) => { input.value = at % 2 ? extent[at >> 1] : 0; });
    this.show(this.detail, null);
    this.draw();
  }

  async choose() {
    this.leave();
    if (this.free && this.selects[0].value === this.selects[1].value) {
      this.error.textContent = "Rows and columns need two axes.";
      return;
    }
    const [rows, columns] = this.extent();
    if (!this.free && this.places[1]) this.placed(columns);
    const cut = this.bounds.map((input) => Number(input.value));
    const fits = (from, to, most) => Number.isInteger(from) && Number.isInteger(to) && from >= 0 && from < to && to <= most;
    if (!fits(cut[0], cut[1], rows) || !fits(cut[2], cut[3], columns)) {
      this.error.textContent = `Rows are 0 to ${rows}, columns 0 to ${columns}; the end is not among them.`;
      return;
    }
    if (this.path) await this.asked(cut);
    else {
      this.show(this.detail, cut);
      this.draw();
    }
  }

  // An index on the second axis is a range of columns, as columns span all other axes.
  placed(columns) {
    const text = this.places[1].value;
    const each = columns / this.shape[1];
    const at = Number(text);
    if (text !== "" && Number.isInteger(at) && at >= 0 && at < this.shape[1]) {
      this.bounds[2].value = at * each;
      this.bounds[3].value = (at + 1) * each;
    }
  }

  async asked(cut) {
    const control = (this.control = new AbortController());
    const stop = () => control.abort();
    this.signal.addEventListener("abort", stop);
    const at = this.places.map((input) => (input ? Number(input.value) : 0));
    const query = new URLSearchParams({
      rows: this.axes[0], columns: this.axes[1], at: at.join(","),
      top: cut[0], bottom: cut[1], left: cut[2], right: cut[3],
    });
    this.error.textContent = "Reading\u2026";
    try {
      const found = await ask(`${this.path}?${query}`, control.signal);
      if (control.signal.aborted) return;
      this.error.textContent = "";
      this.show(found, null, cut);
      this.draw();
    } catch (error) {
      if (error.name !== "AbortError") this.error.textContent = error.message;
    } finally {
      this.signal.removeEventListener("abort", stop);
    }
  }

  // --- What is shown --------------------------------------------------------------------------

  // Args: the map and norms; the shown part of it; the index of its first value.
  show(found, cut, origin) {
    this.found = found;
    this.origin = origin || cut || [0, found.row_norms.count, 0, found.column_norms.count];
    this.picture = pictureOf(found, cut);
    this.values = found.values || null;
    const { heat, row_norms: rows, column_norms: columns } = found;
    const [top, bottom, left, right] = this.origin;
    const counted = [cut ? bottom - top : rows.count, cut ? right - left : columns.count];
    this.title.textContent = (this.values ? "Values" : "RMS of tiles") + ", norms of rows and columns" + this.of;
    this.most = this.values ? Math.max(...this.values.map((one) => Math.abs(Number(one)) || 0).filter(Number.isFinite)) || 1 : 0;
    const scale = this.values
      ? `${numberText(-this.most, 3)} to ${numberText(this.most, 3)}`
      : `dark ${numberText(heat.scale.low, 3)}, bright ${numberText(heat.scale.high, 3)}`;
    this.ends.replaceChildren(
      element("span", "", `${countText(counted[0])} rows \u2193, ${countText(counted[1])} columns \u2192`),
      element("span", "", scale),
    );
    const { high, wide } = this.picture;
    this.canvas.setAttribute("aria-label", this.values
      ? `${high} by ${wide} values; arrow keys go through them`
      : `${high} by ${wide} tiles; RMS from ${numberText(heat.scale.low)} to ` +
        `${numberText(heat.scale.high)}; arrow keys go through them`);
    this.status.textContent = "";
    this.notes.replaceChildren();
    if (cut) return;
    for (const [noun, norms, first] of [["row", rows, top], ["column", columns, left]]) {
      const parts = [`largest ${noun} ${countText(norms.argmax + first)}: ${numberText(norms.max)}`];
      if (norms.median) parts.push(`${numberText(norms.max / norms.median, 3)} times the median`);
      if (norms.dead) parts.push(`${countText(norms.dead)} zero`);
      this.notes.append(element("p", "note", parts.join(", ")));
    }
  }

  draw() {
    const edge = 34; // for the norms, right and below
    const { levels, high, wide, rows, columns } = this.picture;
    const width = this.section.clientWidth;
    if (!width) return;
    const height = Math.min(Math.max((high / wide) * (width - edge), 90), 260) + edge;
    const context = sharp(this.canvas, width, height);
    const [w, h] = (this.tile = [(width - edge) / wide, (height - edge) / high]);
    const signed = this.values && diverging();
    for (let at = 0; at < levels.length; at++) {
      const value = signed && Number(this.values[at]);
      if (signed) context.fillStyle = Number.isFinite(value) ? cssOf(signed(value / this.most)) : theme("none");
      else context.fillStyle = levels[at] ? cssOf(viridis((levels[at] - 1) / 14)) : theme("none");
      context.fillRect((at % wide) * w, Math.floor(at / wide) * h, w + 0.4, h + 0.4);
    }
    context.fillStyle = theme("bar");
    const strip = (norms, length, put) => {
      const most = Math.max(...norms.map(Number)) || 1;
      const each = length / norms.length;
      norms.forEach((norm, at) => put(at * each, (Number(norm) / most) * (edge - 6), each));
    };
    strip(rows, height - edge, (y, size, each) => context.fillRect(width - edge + 4, y, size, Math.max(each - 0.5, 0.5)));
    strip(columns, width - edge, (x, size, each) => context.fillRect(x, height - edge + 4, Math.max(each - 0.5, 0.5), size));
  }

  hover(event) {
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const at = [Math.floor(y / this.tile[1]), Math.floor(x / this.tile[0])];
    if (at[0] < this.picture.high && at[1] < this.picture.wide) { this.at = at; this.tell(); }
  }

  pressed(event) {
    const steps = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] };
    const step = steps[event.key];
    if (!step) return;
    const { high, wide } = this.picture;
    this.at = [Math.min(Math.max(this.at[0] + step[0], 0), high - 1), Math.min(Math.max(this.at[1] + step[1], 0), wide - 1)];
    this.tell();
    event.preventDefault();
  }

  tell() {
    const [row, column] = this.at;
    const { high, wide, levels, scale } = this.picture;
    const [top, bottom, left, right] = this.origin;
    if (this.values) {
      const value = this.values[row * wide + column];
      this.status.textContent = `row ${top + row}, column ${left + column}: ${numberText(value === null ? "nan" : value, 6)}`;
      return;
    }
    const span = (at, parts, from, to) => {
      const first = from + Math.floor((at * (to - from)) / parts);
      const last = from + Math.max(Math.floor(((at + 1) * (to - from)) / parts) - 1, 0);
      return first >= last ? `${first}` : `${first}\u2013${last}`;
    };
    const level = levels[row * wide + column];
    const [low, most] = [Number(scale.low), Number(scale.high)];
    const rms = level ? low * (most / low) ** ((level - 1) / 14) : 0;
    this.status.textContent = `rows ${span(row, high, top, bottom)}, columns ${span(column, wide, left, right)}: ` +
      `RMS about ${numberText(rms, 2)}`;
  }
}
