// One tensor, or two beside each other: facts, findings, histogram, map of tiles.

const FACTS = [
  ["RMS", "rms"], ["max / RMS", "crest"], ["min", "min"], ["max", "max"], ["mean", "mean"],
  ["std", "std"], ["zeros", "zeros"], ["kurtosis", "kurtosis"], ["NaN", "nans"],
  ["infinite", "infs"],
];

class TensorPanel {
  constructor(rows, panel) {
    Object.assign(this, { rows, panel, row: -1, logs: true });
  }

  async show(row) {
    this.row = row;
    const places = this.rows.places(row);
    const details = await Promise.all(places.map(([number, at]) => this.detailOf(number, at, row)));
    if (this.row !== row) return; // another one was chosen meanwhile
    this.places = places;
    this.details = details;
    this.build();
  }

  // Of a second model only what differs is in the page.
  detailOf(number, at, row) {
    const diff = this.rows.diff;
    const isSame = number === 1 && (diff.kind[row] === "equal" || diff.kind[row] === "renamed");
    return isSame ? this.rows.models[0].detail(diff.a[row]) : this.rows.models[number].detail(at);
  }

  build() {
    const { rows, row, panel, places, details } = this;
    panel.replaceChildren();
    const first = element("div");
    first.append(...this.heading());
    const found = places.flatMap(([number, at]) => rows.models[number].findings.get(at) || []);
    if (found.length) {
      const list = element("ul", "said");
      for (const one of found) {
        const line = element("li");
        const model = places.length > 1 ? `${rows.models[one.model].raw.name}: ` : "";
        line.append(levelMark(one.level), ` ${model}${ruleTitle(one.rule)}: ${one.text}`);
        list.append(line);
      }
      first.append(list);
    }
    first.append(this.facts());
    if (rows.diff) first.append(this.changes());
    panel.append(first);
    const known = details.filter((one) => one !== null);
    if (known.length < details.length) {
      panel.append(element("p", "note", "The details of this tensor were left out of the page."));
    }
    const notes = new Set(known.map((one) => one.note).filter(Boolean));
    for (const note of notes) panel.append(element("p", "note", note));
    this.pictures = [];
    if (known.some((one) => one.histogram)) panel.append(this.histogram(known));
    known.forEach((one, at) => {
      if (one.heat) panel.append(this.heat(one, known.length > 1 ? at : null));
    });
    this.draw();
  }

  heading() {
    const name = this.rows.names[this.row];
    const title = element("h2", "name", name || "(empty name)");
    title.id = "detail-title";
    const line = element("div", "line");
    const copy = element("button", "quiet", "Copy name");
    copy.type = "button";
    copy.addEventListener("click", () => {
      getSelection().selectAllChildren(title);
      const done = document.execCommand("copy");
      copy.textContent = done ? "Copied" : "Selected";
    });
    const link = element("a", "note", "Link");
    link.href = linkTo(this.rows, this.row);
    line.append(copy, link);
    const places = this.rows.places(this.row);
    const renamed = this.rows.diff && this.rows.diff.kind[this.row] === "renamed";
    if (renamed) {
      line.append(element("span", "note", "now " + this.rows.models[1].names[places[1][1]]));
    }
    return [title, line];
  }

  facts() {
    const list = element("dl", this.places.length > 1 ? "facts pair" : "facts");
    const add = (title, values) => {
      list.append(element("dt", "", title));
      for (const value of values) list.append(element("dd", "num", value));
    };
    const models = this.places.map(([number, at]) => [this.rows.models[number], at]);
    if (models.length > 1) add("", models.map(([model]) => model.raw.name));
    add("shape", models.map(([model, at]) => model.shapeTextOf(at)));
    add("type", models.map(([model, at]) => model.typeOf(at)));
    add("size", models.map(([model, at]) => sizeText(model.nbytes[at])));
    add("elements", models.map(([model, at]) => countText(model.elementsOf(at))));
    for (const [title, key] of FACTS) {
      const values = this.details.map((one) => (one ? one[key] : null));
      if (["nans", "infs"].includes(key) && values.every((value) => !value)) continue;
      add(title, values.map((value) => numberText(value)));
    }
    for (const [title, key] of [["median row", "row_norms"], ["median column", "column_norms"]]) {
      if (!this.details.some((one) => one && one[key])) continue;
      add(title, this.details.map((one) => (one && one[key] ? numberText(one[key].median) : "\u2013")));
    }
    const words = { layout: "layouts", encoding: "encodings", digest: "digests" };
    for (const [title, table] of Object.entries(words)) {
      add(title, models.map(([model, at]) => model.columns[table][model.columns[title][at]]));
    }
    const of = this.details.find((one) => one && one.of && one.of !== "values");
    if (of) list.append(element("dt", "", "of"), element("dd", "", of.of));
    return list;
  }

  changes() {
    const { diff } = this.rows;
    const section = element("section");
    section.append(element("h3", "", "What changed"));
    const kind = element("p", "", diff.kind[this.row]);
    if (diff.differences[this.row].length) kind.textContent += ` (${diff.differences[this.row].join(", ")})`;
    section.append(kind);
    if (diff.note[this.row]) section.append(element("p", "note", diff.note[this.row]));
    const list = element("dl", "facts");
    const named = [["relative change", "relative"], ["cosine", "cosine"], ["SNR, dB", "snr_db"],
      ["largest |b \u2212 a|", "max_abs"], ["values changed", "changed"]];
    for (const [title, key] of named) {
      if (diff[key][this.row] === null) continue;
      list.append(element("dt", "", title), element("dd", "num", numberText(diff[key][this.row], 6)));
    }
    section.append(list);
    return section;
  }

  // --- Pictures -------------------------------------------------------------------------------

  histogram(known) {
    const section = element("section");
    const line = element("div", "line");
    const scale = element("button", "quiet", "");
    scale.type = "button";
    const name = () => {
      scale.textContent = this.logs ? "Show counts as they are" : "Show the logarithm of counts";
    };
    scale.addEventListener("click", () => { this.logs = !this.logs; name(); this.draw(); });
    name();
    line.append(element("h3", "", "Values"), element("span", "grow"), scale);
    const canvas = element("canvas");
    canvas.setAttribute("role", "img");
    const ends = element("div", "ends");
    const shown = known.filter((one) => one.histogram);
    const low = Math.min(...shown.map((one) => Number(one.histogram.low)));
    const high = Math.max(...shown.map((one) => Number(one.histogram.high)));
    ends.append(element("span", "", numberText(low)), element("span", "", numberText(high)));
    section.append(line, canvas, ends);
    const median = shown.map((one) => one.quantiles.find(([share]) => share === 0.5));
    const texts = median.map((one) => (one ? numberText(one[1]) : "\u2013"));
    canvas.setAttribute("aria-label", `Histogram of values from ${numberText(low)} to ` +
      `${numberText(high)}; median ${texts.join(" and ")}`);
    section.append(this.quantileLine(shown));
    this.pictures.push(() => drawHistogram(canvas, shown, low, high, this.logs));
    return section;
  }

  quantileLine(shown) {
    const line = element("p", "note");
    const wanted = [0.01, 0.25, 0.5, 0.75, 0.99];
    line.textContent = shown.map((one) => wanted
      .map((share) => [share, one.quantiles.find(([found]) => found === share)])
      .filter(([, found]) => found)
      .map(([share, found]) => `${share * 100}%: ${numberText(found[1], 3)}`)
      .join("   ")).join("  |  ");
    return line;
  }

  heat(detail, which) {
    const section = element("section");
    const { heat, row_norms: rows, column_norms: columns } = detail;
    const title = "RMS of tiles, norms of rows and columns";
    const of = which === null ? "" : ` \u00b7 ${this.rows.models[this.places[which][0]].raw.name}`;
    section.append(element("h3", "", title + of));
    const canvas = element("canvas");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `${heat.shape[0]} by ${heat.shape[1]} tiles; ` +
      `RMS from ${numberText(heat.scale.low)} to ${numberText(heat.scale.high)}`);
    const ends = element("div", "ends");
    ends.append(
      element("span", "", `${countText(rows.count)} rows \u2193, ${countText(columns.count)} columns \u2192`),
      element("span", "", `dark ${numberText(heat.scale.low, 3)}, bright ${numberText(heat.scale.high, 3)}`),
    );
    section.append(canvas, ends);
    for (const [noun, norms] of [["row", rows], ["column", columns]]) {
      const parts = [`largest ${noun} ${countText(norms.argmax)}: ${numberText(norms.max)}`];
      if (norms.median) parts.push(`${numberText(norms.max / norms.median, 3)} times the median`);
      if (norms.dead) parts.push(`${countText(norms.dead)} zero`);
      section.append(element("p", "note", parts.join(", ")));
    }
    this.pictures.push(() => drawHeat(canvas, detail));
    return section;
  }

  draw() {
    for (const picture of this.pictures || []) picture();
  }
}

function drawHistogram(canvas, shown, low, high, logs) {
  const width = canvas.parentElement.clientWidth;
  const height = 130;
  const context = sharp(canvas, width, height);
  const level = (count) => (logs ? Math.log1p(count) : count);
  const span = high - low || 1;
  shown.forEach((one, at) => {
    const counts = one.histogram.counts.map(Number);
    const total = counts.reduce((a, b) => a + b, 0) || 1;
    const most = Math.max(...counts.map(level)) || 1;
    const [begin, end] = [Number(one.histogram.low), Number(one.histogram.high)];
    const left = ((begin - low) / span) * width;
    const bar = counts.length > 1 ? (((end - begin) / span) * width) / counts.length : 4;
    context.fillStyle = context.strokeStyle = theme(at ? "bar2" : "bar");
    context.lineWidth = 1.5;
    context.beginPath();
    if (shown.length > 1) context.moveTo(left, height - 1);
    counts.forEach((count, i) => {
      const y = height - 1 - (level(count) / most) * (height - 8);
      if (shown.length > 1) {
        context.lineTo(left + i * bar, y);
        context.lineTo(left + (i + 1) * bar, y);
      } else if (count) {
        context.fillRect(left + i * bar, Math.min(y, height - 2.5), Math.max(bar - 0.7, 1), height - y);
      }
    });
    if (shown.length > 1) { context.lineTo(left + counts.length * bar, height - 1); context.stroke(); }
    void total;
  });
  context.strokeStyle = theme("line");
  context.lineWidth = 1;
  context.strokeRect(-1, height - 0.5, width + 2, 2);
  if (low < 0 && high > 0) {
    const x = Math.round((-low / span) * width) + 0.5;
    context.beginPath();
    context.moveTo(x, 0);
    context.lineTo(x, height);
    context.setLineDash([2, 3]);
    context.stroke();
  }
}

// Levels are 4 bits: 0 is zero, the others rise by one ratio.
function drawHeat(canvas, detail) {
  const { heat, row_norms: rows, column_norms: columns } = detail;
  const [high, wide] = heat.shape;
  const edge = 34; // for the norms, right and below
  const width = canvas.parentElement.clientWidth;
  const height = Math.min(Math.max((high / wide) * (width - edge), 90), 260) + edge;
  const context = sharp(canvas, width, height);
  const packed = atob(heat.data);
  const [w, h] = [(width - edge) / wide, (height - edge) / high];
  for (let at = 0; at < high * wide; at++) {
    const byte = packed.charCodeAt(at >> 1);
    const level = at % 2 ? byte & 15 : byte >> 4;
    context.fillStyle = level ? cssOf(viridis((level - 1) / 14)) : theme("none");
    const [x, y] = [(at % wide) * w, Math.floor(at / wide) * h];
    context.fillRect(x, y, w + 0.4, h + 0.4);
  }
  context.fillStyle = theme("bar");
  const strip = (norms, length, put) => {
    const most = Math.max(...norms.strip.map(Number)) || 1;
    const each = length / norms.strip.length;
    norms.strip.forEach((norm, at) => put(at * each, (Number(norm) / most) * (edge - 6), each));
  };
  strip(rows, height - edge, (y, size, each) => context.fillRect(width - edge + 4, y, size, Math.max(each - 0.5, 0.5)));
  strip(columns, width - edge, (x, size, each) => context.fillRect(x, height - edge + 4, Math.max(each - 0.5, 0.5), size));
}
