// The state of the page: choice, filters, sorting; and its display.

let rules = {};

const ruleTitle = (rule) => (rules[rule] ? rules[rule].title : rule);

function levelMark(level) {
  return element("span", `level ${level}`, LEVEL_WORDS[level]);
}

// In the frame of a notebook the page has no address: links would lead to the notebook.
const HAS_ADDRESS = location.protocol !== "about:";
const linkTo = (rows, row) => `#t=${row}-${nameHash(rows.names[row])}`;

const NAME_ROOM = 220; // pixels: below this width of names some columns are dropped

const ONE = [
  { key: "name", title: "name", wide: false, size: "minmax(120px, 1fr)" },
  { key: "shape", title: "shape", wide: true, size: "104px" },
  { key: "type", title: "type", wide: true, size: "100px" },
  { key: "nbytes", title: "size", num: true, size: "68px" },
  { key: "rms", title: "RMS", num: true, wide: true, spare: true, size: "80px" },
  { key: "crest", title: "max / RMS", num: true, wide: true, spare: true, size: "72px" },
];
const TWO = [
  { key: "name", title: "name", wide: false, size: "minmax(120px, 1fr)" },
  { key: "kind", title: "what", wide: true, size: "74px" },
  { key: "shape", title: "shape", wide: true, spare: true, size: "104px" },
  { key: "type", title: "type", wide: true, size: "136px" },
  { key: "relative", title: "change", num: true, size: "76px" },
  { key: "cosine", title: "cosine", num: true, wide: true, spare: true, size: "70px" },
  { key: "snr_db", title: "SNR, dB", num: true, size: "64px" },
];

class Page {
  constructor(document_) {
    this.chosen = undefined;
    rules = document_.rules;
    this.document = document_;
    this.models = [];
    this.columns = document_.diff ? TWO : ONE;
    const { types } = document_.models[0].tensors;
    const others = document_.models[document_.models.length - 1].tensors.types;
    if (document_.diff && types.join() === others.join()) { // equal types need no pairs, which leaves room for names
      TWO.find((one) => one.key === "type").size = "72px";
    }
  }

  async build() {
    for (const raw of this.document.models) {
      await pause(); // between pieces of work, so that the page stays responsive
      const { chunk, live } = this.document;
      this.models.push(new Model(raw, this.models.length, chunk, Boolean(live)));
    }
    for (const one of this.document.findings) {
      const of = this.models[one.model].findings;
      if (!of.has(one.tensor)) of.set(one.tensor, []);
      of.get(one.tensor).push(one);
    }
    await pause();
    this.rows = new Rows(this.models, this.document.diff);
    this.range = { first: 0, last: this.rows.count, depth: 0 };
    this.words = [];
    this.chips = new Set();
    this.sort = { key: "name", down: false };
    this.panel = new TensorPanel(this.rows, byId("detail"));
    await pause();
    this.header();
    this.findings();
    this.table();
    await pause();
    this.filter();
    performance.mark("rows");
    this.about();
    await pause();
    this.grid = new Grid(this.rows, (row) => this.choose(row));
    this.grid.draw();
    await pause();
    this.tree = new Tree(byId("tree"), this.rows, (node) => this.chooseNode(node));
    this.map = new Treemap(this.rows, (node) => this.chooseNode(node));
    this.chipButtons();
    this.tabs();
    this.listen();
    const [worst] = this.document.findings;
    if (!this.follow() && worst && worst.level !== "info") {
      this.choose(this.rows.rowOf[worst.model][worst.tensor], false, false);
    }
  }

  header() {
    byId("title").textContent = this.models.map((model) => model.raw.name).join("  \u2192  ");
    const summary = byId("summary");
    const add = (number, noun) => {
      const span = element("span");
      span.append(element("b", "", number), noun);
      summary.append(span);
    };
    const list = (of, noun) => {
      const texts = this.models.map(of);
      add(texts[0] === texts[texts.length - 1] ? texts[0] : texts.join(" \u2192 "), noun);
    };
    list((model) => countText(model.count), this.models[0].count === 1 ? " tensor" : " tensors");
    list((model) => countText(model.raw.parameters), " parameters");
    list((model) => sizeText(model.raw.nbytes), "");
    list((model) => model.raw.format, "");
    for (const model of this.models) byId("types").append(typeBar(model, this.models.length > 1));
    const states = this.models[0].raw.optimizer_state;
    const { sampled } = this.document;
    if (sampled) add(`${numberText(sampled.share * 100, 3)} %`, " of the rows of large tensors");
    if (states) add(sizeText(states.nbytes), " of it optimizer state");
  }

  findings() {
    const merged = new Map(); // one line for all rules on a tensor
    for (const one of this.document.findings) {
      const key = this.rows.rowOf[one.model][one.tensor];
      if (!merged.has(key)) merged.set(key, []);
      const known = merged.get(key); // of two models both may have the finding
      if (!known.some((other) => other.rule === one.rule && other.text === one.text)) known.push(one);
    }
    const groups = new Map(); // findings of the same rules, under the worst one
    for (const several of merged.values()) {
      const key = several.map((one) => `${one.level} ${one.rule}`).join();
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(several);
    }
    this.groups = [...groups.values()];
    byId("findings-all").addEventListener("click", () => this.findingList(this.groups.length));
    this.findingList(8);
    const more = this.document.finding_count > this.document.findings.length ? "over " : "";
    const count = merged.size ? ` (${more}${countText(merged.size)})` : "";
    byId("findings-title").textContent = `Findings${count}`;
    if (this.document.live && !this.document.is_examined) {
      const nbytes = this.models.reduce((sum, model) => sum + Number(model.raw.stored_nbytes), 0);
      this.examination = new Examination(byId("examination"), nbytes);
      return;
    }
    const unlooked = this.document.not_looked_at;
    if (unlooked.length) {
      byId("unlooked").textContent = `Not looked at: ${unlooked.map(ruleTitle).join(", ").toLowerCase()}` +
        (this.rows.diff || this.document.sampled ? "." : ", which need a second model.");
    }
  }

  findingList(most) {
    const list = byId("findings");
    list.replaceChildren();
    for (const group of this.groups.slice(0, most)) list.append(...this.findingGroup(group));
    const isLooked = !this.document.live || this.document.is_examined;
    if (!this.groups.length && isLooked) {
      list.append(element("li", "note", "No rule found anything. That is no proof that all is well."));
    }
    const all = byId("findings-all");
    all.hidden = this.groups.length <= most;
    all.textContent = `Show all ${countText(this.groups.length)} kinds`;
  }

  findingGroup(group) {
    const [first, ...others] = group;
    const line = this.findingLine(first);
    if (!others.length) return [line];
    const more = element("li", "more");
    const button = element("button", "quiet");
    const noun = others.length === 1 ? "tensor" : "tensors";
    button.type = "button";
    button.textContent = `${countText(others.length)} more ${noun}: ${first.map((one) => ruleTitle(one.rule)).join("; ")}`;
    button.addEventListener("click", () => {
      const lines = others.map((several) => this.findingLine(several));
      more.replaceWith(...lines);
      lines[0].firstChild.focus();
    });
    more.append(button);
    return [line, more];
  }

  findingLine(several) {
    const [one] = several;
    const button = element("button");
    button.type = "button";
    const text = element("span");
    const row = this.rows.rowOf[one.model][one.tensor];
    const isAlone = this.models.length > 1 && this.rows.places(row).length < 2;
    text.append(breakable(nameText(this.rows.names[row], 160), "name"));
    text.append(isAlone ? ` (only in ${this.models[one.model].raw.name})` : "", element("br"));
    several.forEach((found, at) => {
      text.append(at ? "; " : "", element("b", "", ruleTitle(found.rule)), `: ${found.text}`);
    });
    button.append(levelMark(one.level), text);
    button.addEventListener("click", () => this.choose(row));
    const line = element("li");
    line.append(button);
    return line;
  }

  // --- Filters --------------------------------------------------------------------------------

  chipButtons() {
    const add = (key, text, test) => {
      const button = element("button", "", text);
      button.type = "button";
      button.setAttribute("aria-pressed", "false");
      button.addEventListener("click", () => {
        const on = !this.chips.has(test);
        if (on) this.chips.add(test); else this.chips.delete(test);
        button.setAttribute("aria-pressed", String(on));
        this.filter();
      });
      test.group = key;
      byId("chips").append(button);
    };
    if (this.document.findings.length) add("finding", "findings", (row) => this.rows.level(row) < 3);
    if (this.rows.diff) {
      for (const kind of new Set(this.rows.diff.kind)) {
        add("kind", kind, (row) => this.rows.diff.kind[row] === kind);
      }
    }
    const types = this.models[0].columns.types;
    if (types.length > 1) {
      types.slice(0, 6).forEach((type, at) => add("type", type, (row) => {
        const [model, place] = this.rows.first(row);
        return model.number === 0 && model.columns.type[place] === at;
      }));
    }
    const isLarge = (row) => this.rows.nbytes(row) > 1e6;
    let large = 0;
    for (let row = 0; row < this.rows.count; row++) large += isLarge(row);
    if (large && large < this.rows.count) add("size", "over 1 MB", isLarge);
  }

  filter() {
    const { rows, words } = this;
    const lower = words.length ? rows.lowered() : null;
    const groups = new Map();
    for (const test of this.chips) {
      groups.set(test.group, [...(groups.get(test.group) || []), test]);
    }
    const tests = [...groups.values()];
    const isFound = (row) => (!lower || words.every((word) => lower[row].includes(word)))
      && tests.every((several) => several.some((test) => test(row)));
    const kept = new Int32Array(this.range.last - this.range.first);
    const sums = lower || tests.length ? new Int32Array(rows.count + 1) : null;
    let length = 0;
    for (let row = 0; row < rows.count; row++) {
      const isIn = row >= this.range.first && row < this.range.last;
      if (!isIn && !sums) continue;
      const found = isFound(row);
      if (sums) sums[row + 1] = sums[row] + found;
      if (isIn && found) kept[length++] = row;
    }
    this.shown = kept.slice(0, length);
    this.sorted();
    this.marked(sums);
    const count = byId("count");
    const isAll = length === rows.count;
    count.textContent = isAll ? countText(length) : `${countText(length)} of ${countText(rows.count)}`;
    if (this.range.last - this.range.first < rows.count) {
      const clear = element("button", "quiet", `below ${this.range.text} \u2715`);
      clear.type = "button";
      clear.addEventListener("click", () => this.setRange({ first: 0, last: rows.count, depth: 0 }));
      count.append(" ", clear);
    }
    if (this.map && !byId("map-box").hidden) this.map.draw(this.range);
  }

  // Tensors outside the search are left out of the tree, and faint in the pictures.
  marked(sums) {
    if (!this.tree) return; // not built yet: nothing is filtered
    const isSame = !sums && !this.grid.kept;
    this.grid.kept = this.map.kept = sums;
    if (isSame) return;
    this.tree.filter(sums);
    this.grid.draw();
  }

  setRange(range) {
    this.range = range;
    this.filter();
  }

  valueOf(row, key) {
    const { diff } = this.rows;
    if (diff && key in diff) return diff[key][row];
    const [model, at] = this.rows.first(row);
    if (key === "nbytes") return model.nbytes[at];
    if (key === "shape") return model.elementsOf(at);
    if (key === "type") return model.columns.types[model.columns.type[at]];
    return model.columns[key][at];
  }

  sorted() {
    const { key, down } = this.sort;
    if (key !== "name") {
      const isText = key === "type" || key === "kind";
      const values = new Map();
      const numbers = new Float64Array(isText ? 0 : this.rows.count);
      for (const row of this.shown) {
        const value = this.valueOf(row, key);
        if (isText) values.set(row, value);
        else numbers[row] = value === null ? -Infinity : value === "inf" ? Infinity : Number(value);
      }
      this.shown.sort(isText
        ? (a, b) => (values.get(a) < values.get(b) ? -1 : values.get(a) > values.get(b) ? 1 : a - b)
        : (a, b) => numbers[a] - numbers[b] || a - b);
      if (down) this.shown.reverse();
    } else if (down) this.shown.reverse();
    this.list.set(this.shown.length);
  }

  // --- The table ------------------------------------------------------------------------------

  table() {
    const head = element("div");
    head.setAttribute("role", "rowgroup");
    head.className = "head cells";
    const line = element("div");
    line.setAttribute("role", "row");
    line.setAttribute("aria-rowindex", "1");
    line.style.display = "contents";
    for (const column of this.columns) {
      const cell = element("div", column.num ? "num" : "");
      if (column.wide) cell.classList.add("wide");
      if (column.spare) cell.classList.add("spare");
      cell.setAttribute("role", "columnheader");
      const button = element("button", "", column.title);
      button.type = "button";
      button.addEventListener("click", () => this.sortBy(column));
      cell.append(button);
      line.append(cell);
      column.cell = cell;
      column.button = button;
    }
    head.append(line);
    this.head = head;
    this.list = new VirtualList(byId("table"), {
      role: "row",
      head,
      fill: (row, at) => this.fillRow(row, this.shown[at], at),
      choose: (at) => this.choose(this.shown[at], false),
      key: () => false,
    });
    this.template();
  }

  template() {
    const isNarrow = matchMedia("(max-width: 760px)").matches;
    // With an open panel, columns that the panel repeats are dropped for names.
    const room = (several) => byId("table").clientWidth
      - several.reduce((sum, one) => sum + (one.key === "name" ? 40 : parseInt(one.size) + 10), 0);
    const isTight = !byId("detail").hidden && room(this.columns) < NAME_ROOM;
    byId("table").classList.toggle("tight", isTight);
    const columns = this.columns.filter((column) => !(isNarrow && column.wide) && !(isTight && column.spare));
    this.widths = columns.map((column) => column.size).join(" ");
    this.longest = this.longest || this.rows.names.reduce((most, one) => Math.max(most, one.length), 0);
    this.isWrapped = this.longest * 7.6 > room(columns);
    this.list.tall = this.isWrapped ? 2 * ROW - 10 : ROW;
    byId("table").style.maxHeight = `${this.rows.count * this.list.tall + 50}px`;
    this.head.style.gridTemplateColumns = this.widths;
    if (this.shown) this.list.set(this.shown.length);
  }

  sortBy(column) {
    const isSame = this.sort.key === column.key;
    this.sort = { key: column.key, down: isSame ? !this.sort.down : Boolean(column.num) };
    for (const one of this.columns) {
      const on = one === column;
      one.cell.setAttribute("aria-sort", on ? (this.sort.down ? "descending" : "ascending") : "none");
      one.button.textContent = one.title + (on ? (this.sort.down ? " \u25be" : " \u25b4") : "");
    }
    this.filter();
  }

  fillRow(line, row, at) {
    line.classList.add("cells");
    line.style.gridTemplateColumns = this.widths;
    line.setAttribute("aria-rowindex", at + 2);
    line.setAttribute("aria-selected", String(row === this.chosen));
    for (const column of this.columns) {
      const cell = element("div", column.num ? "num" : "");
      if (column.wide) cell.classList.add("wide");
      if (column.spare) cell.classList.add("spare");
      cell.setAttribute("role", "gridcell");
      if (column.key === "name") {
        const level = this.rows.level(row);
        const text = nameText(this.rows.names[row]);
        const name = this.isWrapped && text.length < 200 ? breakable(text, "name wrapped") : cutName(text);
        name.title = text;
        if (level < 3) {
          name.prepend(element("span", `level ${LEVELS[level]}`, ""));
          name.title += `: ${LEVEL_WORDS[LEVELS[level]]}`;
        }
        cell.append(name);
      } else cell.textContent = this.cellText(row, column.key);
      line.append(cell);
    }
  }

  cellText(row, key) {
    const places = this.rows.places(row);
    const pair = (text) => {
      const texts = places.map(([number, at]) => text(this.models[number], at));
      return texts.length > 1 && texts[0] !== texts[1] ? `${texts[0]} \u2192 ${texts[1]}` : texts[0];
    };
    if (key === "shape") return pair((model, at) => model.shapeTextOf(at));
    if (key === "type") return pair((model, at) => model.typeOf(at));
    const value = this.valueOf(row, key);
    if (key === "nbytes") return sizeText(value);
    if (key === "cosine") return value === null ? "\u2013" : numberText(value, 6);
    if (key === "kind") return value === "not looked at" ? "\u2013" : value;
    return numberText(value, key === "snr_db" ? 3 : 4);
  }

  tabs() {
    const show = (isMap) => {
      byId("table").hidden = isMap;
      byId("map-box").hidden = byId("map-color").hidden = !isMap;
      for (const button of byId("tabs").children) {
        button.setAttribute("aria-pressed", String((button.dataset.map === "1") === isMap));
      }
      if (isMap) this.map.draw(this.range); else this.list.draw();
    };
    for (const [map, text] of [["0", "Table"], ["1", "Treemap"]]) {
      const button = element("button", "", text);
      button.type = "button";
      button.dataset.map = map;
      button.setAttribute("aria-pressed", String(map === "0"));
      button.addEventListener("click", () => show(map === "1"));
      byId("tabs").append(button);
    }
  }

  about() {
    const body = byId("about-body");
    const add = (title, table) => {
      const part = element("div", "part");
      part.append(element("h3", "", title), table);
      body.append(part);
    };
    const tally = (several) => tableOf(several.slice(0, 20).map((one) =>
      [nameText(String(one.name), 80), countText(one.tensors), sizeText(one.nbytes)]));
    for (const model of this.models) {
      const of = this.models.length > 1 ? ` of ${model.raw.name}` : "";
      if (model.raw.types.length) add("Types" + of, tally(model.raw.types));
      if (model.raw.groups.length > 1) add("Groups" + of, tally(model.raw.groups));
      const { encodings } = model.raw;
      if (encodings.some((one) => one.name !== "raw")) add("Encodings" + of, tally(encodings));
      if (model.raw.attributes.length) add("Attributes" + of, tableOf(model.raw.attributes));
    }
    const left = this.document.left_out;
    if (left.length) {
      add("Left out of this page", tableOf(left.map((one) => [one.what, countText(one.count), one.why])));
    }
    body.append(element("p", "note", `${this.document.producer}, ${this.document.schema}`));
  }

  // --- What is chosen -------------------------------------------------------------------------

  choose(row, reveals = true, isLinked = true) {
    if (row < 0 || row >= this.rows.count) return;
    this.chosen = row;
    this.opened(true);
    const at = this.shown.indexOf(row);
    if (reveals && at >= 0) this.list.move(at, true, 0.4);
    this.list.redraw();
    this.panel.show(row).then((isShown) => {
      if (!isShown) return;
      if (this.rows.live) this.list.redraw();
      document.body.dataset.shown = row;
      if (reveals && innerWidth <= 760) byId("detail").scrollIntoView();
    });
    if (HAS_ADDRESS && isLinked) history.replaceState(null, "", linkTo(this.rows, row));
  }

  // The panel takes space from the names, so it is shown only with a tensor.
  opened(isOpen) {
    const detail = byId("detail");
    if (detail.hidden === !isOpen) return;
    detail.hidden = !isOpen;
    if (!isOpen) this.chosen = undefined;
    this.template();
    this.redraw();
    if (isOpen) return;
    if (HAS_ADDRESS) history.replaceState(null, "", location.pathname + location.search);
    byId("table").focus();
  }

  chooseNode(node) {
    if (node.leaf) this.choose(node.first);
    else this.setRange(node);
  }

  // Show the tensor of the address, and return whether it has one; the hash of the name must match.
  follow() {
    const match = /^#t=(\d+)-([0-9a-f]+)$/.exec(location.hash);
    if (!match) return false;
    let row = Number(match[1]);
    const isIt = (at) => at < this.rows.count && nameHash(this.rows.names[at]) === match[2];
    if (!isIt(row)) row = this.rows.names.findIndex((_, at) => isIt(at));
    if (row >= 0) this.choose(row);
    else {
      this.opened(true);
      byId("detail").replaceChildren(element("p", "note", "The tensor of this link is not in this file."));
    }
    return true;
  }

  listen() {
    const search = byId("search");
    search.addEventListener("input", () => {
      this.words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      this.filter();
      const { top } = byId("tensors-section").getBoundingClientRect();
      if (innerWidth > 760 && top > innerHeight * 0.7) byId("tensors-section").scrollIntoView();
    });
    search.addEventListener("keydown", (event) => {
      if (event.key === "Escape") { search.value = ""; this.words = []; this.filter(); }
      else if (event.key === "ArrowDown" || event.key === "Enter") byId("table").focus();
      else return;
      event.preventDefault();
    });
    document.addEventListener("keydown", (event) => {
      if (event.key === "/" && document.activeElement !== search && !event.ctrlKey) {
        search.focus();
        search.select();
        event.preventDefault();
      } else if (event.key === "Escape" && byId("detail").contains(document.activeElement)) {
        this.opened(false);
      }
    });
    byId("detail").addEventListener("closed", () => this.opened(false));
    byId("tree-toggle").addEventListener("click", () => {
      const open = document.body.classList.toggle("tree-open");
      byId("tree-toggle").setAttribute("aria-expanded", String(open));
      this.tree.list.redraw();
    });
    addEventListener("hashchange", () => this.follow());
    addEventListener("resize", () => { this.template(); this.redraw(); });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.redraw());
    addEventListener("beforeprint", () => this.printed());
    addEventListener("afterprint", () => this.inLight(false));
    themeButton(() => this.redraw());
  }

  redraw() {
    this.grid.draw();
    if (!byId("map-box").hidden) this.map.draw(this.range);
    this.panel.draw();
  }

  // Redraw pictures for print: paper is white.
  inLight(isLight) {
    const root = document.documentElement;
    if (isLight) this.screenTheme = root.dataset.theme;
    if (isLight || this.screenTheme) root.dataset.theme = isLight ? "light" : this.screenTheme;
    else delete root.dataset.theme;
    this.redraw();
  }

  // A virtual list prints only visible rows: the first rows are copied to a plain table.
  printed() {
    this.inLight(true);
    const rows = [...this.shown.slice(0, 200)].map((row) => this.columns.map((column) =>
      (column.key === "name" ? this.rows.names[row] : this.cellText(row, column.key))));
    const table = byId("print-table");
    table.replaceChildren(...tableOf(rows, this.columns.map((column) => column.title)).children);
    if (this.shown.length > 200) {
      table.append(element("caption", "", `and ${countText(this.shown.length - 200)} more`));
    }
  }
}

function tableOf(rows, titles) {
  const table = element("table");
  const body = element("tbody");
  if (titles) {
    const line = element("tr");
    titles.forEach((title, at) => line.append(element("th", at && titles.length > 2 ? "num" : "", title)));
    body.append(line);
  }
  for (const row of rows) {
    const line = element("tr");
    row.forEach((text, at) => {
      const cell = element("td", at && row.length > 2 ? "num" : "");
      cell.append(breakable(String(text)));
      line.append(cell);
    });
    body.append(line);
  }
  table.append(body);
  return table;
}

function typeBar(model, isNamed) {
  const box = element("div");
  const bar = element("div", "stack");
  const legend = element("div", "legend");
  if (isNamed) legend.append(element("span", "name", model.raw.name));
  const { types } = model.raw;
  const total = types.reduce((sum, one) => sum + Number(one.nbytes), 0) || 1;
  for (const one of types.slice(0, 8)) {
    const color = typeColor(model.columns.types.indexOf(one.name));
    const part = element("span");
    part.style.background = color;
    part.style.flex = String(Math.max(Number(one.nbytes) / total, 0.003));
    bar.append(part);
    const label = element("span");
    const mark = element("i");
    mark.style.background = color;
    label.append(mark, `${one.name}  ${sizeText(one.nbytes)}`);
    legend.append(label);
  }
  bar.setAttribute("aria-hidden", "true");
  box.append(bar, legend);
  return box;
}

function themeButton(changed) {
  const root = document.documentElement;
  const button = byId("theme");
  const isDark = () => (root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches);
  const name = () => { button.textContent = isDark() ? "Light" : "Dark"; };
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    name();
    changed();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", name);
  name();
}

async function start() {
  try {
    const data = await unpacked("data");
    await pause();
    const page = new Page(data);
    await page.build();
    document.body.dataset.ready = "1";
    performance.mark("ready");
    if (data.live) stayAlive();
  } catch (error) {
    problem(typeof DecompressionStream === "undefined"
      ? "This browser is too old for this page: it cannot unpack data."
      : `This page cannot be shown: ${error.message}`);
    throw error;
  }
}

start();
