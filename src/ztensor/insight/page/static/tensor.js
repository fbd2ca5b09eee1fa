// One tensor, or two beside each other: facts, findings, histogram, map of tiles.

const FACTS = [
  ["RMS", "rms"], ["max / RMS", "crest"], ["min", "min"], ["max", "max"], ["mean", "mean"],
  ["std", "std"], ["zeros", "zeros"], ["kurtosis", "kurtosis"], ["NaN", "nans"],
  ["infinite", "infs"],
];

class TensorPanel {
  constructor(rows, panel) {
    Object.assign(this, { rows, panel, row: -1, logs: null, isWhole: false });
  }

  // Return whether the tensor is still chosen at the end.
  async show(row) {
    this.row = row;
    if (this.control) this.control.abort();
    const { signal } = (this.control = new AbortController());
    this.places = this.rows.places(row);
    this.details = this.places.map(() => null);
    this.missing = "The details of this tensor were left out of the page.";
    if (this.rows.live) {
      this.missing = "Reading\u2026";
      this.build();
    }
    try {
      const details = this.places.map(([number, at]) => this.detailOf(number, at, row, signal));
      const pair = this.places.length > 1 && this.rows.live ? this.rows.pair(row, signal) : null;
      const [found] = await Promise.all([Promise.all(details), pair]);
      if (this.row !== row || signal.aborted) return false; // another tensor was chosen meanwhile
      this.details = found;
    } catch (error) {
      if (this.row !== row || error.name === "AbortError") return false;
      this.missing = error.message;
    }
    this.build();
    return true;
  }

  // Of a second model the page has only details of different tensors.
  detailOf(number, at, row, signal) {
    const { diff, models } = this.rows;
    const isSame = number === 1 && (diff.kind[row] === "equal" || diff.kind[row] === "renamed");
    if (isSame && !this.rows.live) return models[0].detail(diff.a[row], signal);
    return models[number].detail(at, signal);
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
      panel.append(element("p", "note missing", this.missing));
    }
    const sampled = known.find((one) => one.sampled);
    if (sampled) {
      panel.append(element("p", "note sampled", `From a sample of ${numberText(sampled.sampled * 100, 3)} % of ` +
        "the rows: counts and extremes are those of the sample."));
    }
    const notes = new Set(known.map((one) => one.note).filter(Boolean));
    for (const note of notes) panel.append(element("p", "note", note));
    this.pictures = [];
    if (known.some((one) => one.histogram)) panel.append(this.histogram(known));
    details.forEach((one, at) => {
      if (one && one.heat) panel.append(this.heat(one, details.length > 1 ? at : null));
    });
    const [number, at] = places[places.length - 1];
    if (rows.live && details[places.length - 1] && details[places.length - 1].heat) {
      panel.append(this.singular(number, at));
    }
    this.draw();
  }

  heading() {
    const name = this.rows.names[this.row];
    const title = element("h2", "name");
    title.append(breakable(nameText(name)));
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
    const close = element("button", "quiet", "Close");
    close.type = "button";
    close.addEventListener("click", () => this.panel.dispatchEvent(new Event("closed")));
    line.append(copy, ...(HAS_ADDRESS ? [link] : []), element("span", "grow"), close);
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
    if (models.length > 1) {
      list.append(element("dt"), ...models.map(([model]) => {
        const cell = element("dd");
        cell.append(cutName(model.raw.name));
        return cell;
      }));
    }
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
    const ofs = this.details.map((one) => (one && one.of) || "\u2013");
    if (ofs.some((of) => of !== "values" && of !== "\u2013")) add("numbers of", ofs);
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
      list.append(element("dt", "", title), element("dd", "num", numberText(diff[key][this.row], key === "cosine" ? 6 : 4)));
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
    const hasMiddle = known.some((one) => one.middle);
    const isLog = () => this.logs ?? (this.isWhole || !hasMiddle); // shows tails, else a bell
    const say = () => { scale.textContent = isLog() ? "Linear counts" : "Log counts"; };
    scale.addEventListener("click", () => { this.logs = !isLog(); say(); this.draw(); });
    say();
    const canvas = element("canvas");
    canvas.setAttribute("role", "img");
    const ends = element("div", "ends");
    const shown = known.filter((one) => one.histogram);
    const tools = [scale];
    if (hasMiddle) {
      const range = element("button", "quiet", "");
      range.type = "button";
      const tell = () => { range.textContent = this.isWhole ? "1 % to 99 %" : "Whole range"; };
      range.addEventListener("click", () => { this.isWhole = !this.isWhole; tell(); say(); this.draw(); });
      tell();
      tools.unshift(range);
    }
    line.append(element("h3", "", "Values"), element("span", "grow"), ...tools);
    section.append(line, canvas, ends);
    const median = shown.map((one) => one.quantiles.find(([share]) => share === 0.5));
    const texts = median.map((one) => (one ? numberText(one[1]) : "\u2013"));
    const draw = () => {
      const histograms = shown.map((one) => (this.isWhole ? one.histogram : one.middle || one.histogram));
      const low = Math.min(...histograms.map((one) => Number(one.low)));
      const high = Math.max(...histograms.map((one) => Number(one.high)));
      ends.replaceChildren(element("span", "", numberText(low)), element("span", "", numberText(high)));
      canvas.setAttribute("aria-label", `Histogram of values from ${numberText(low)} to ` +
        `${numberText(high)}; median ${texts.join(" and ")}`);
      drawHistogram(canvas, histograms, low, high, isLog());
    };
    section.append(...this.quantileLines(known));
    this.pictures.push(draw);
    return section;
  }

  // One line for each model, in the colour of its outline.
  quantileLines(known) {
    const shown = known.filter((one) => one.histogram);
    const places = this.places.filter((_, at) => this.details[at] && this.details[at].histogram);
    return shown.map((one, at) => {
      const line = element("p", "note quantiles");
      if (shown.length > 1) {
        const mark = element("i");
        mark.style.background = theme(at ? "bar2" : "bar");
        const { name } = this.rows.models[places[at][0]].raw;
        line.append(mark, element("span", "name", name), " ");
      }
      const found = [0.01, 0.25, 0.5, 0.75, 0.99]
        .map((share) => one.quantiles.find(([other]) => other === share))
        .filter(Boolean)
        .map(([share, value]) => `${share * 100}%:\u00a0${numberText(value, 3)}`);
      line.append(found.join("\u00a0\u00b7 "));
      return line;
    });
  }

  heat(detail, which) {
    const of = which === null ? "" : ` \u00b7 ${this.rows.models[this.places[which][0]].raw.name}`;
    const [number, at] = this.places[which || 0];
    const path = this.rows.live ? `slice/${number}/${at}` : null;
    const shape = this.rows.models[number].shapeOf(at);
    const view = new SliceView(detail, shape, path, this.control.signal, of);
    this.pictures.push(() => view.draw());
    return view.section;
  }

  singular(number, at) {
    const values = new SingularValues(`singular/${number}/${at}`, this.control.signal);
    this.pictures.push(() => values.draw());
    return values.section;
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
    const counts = one.counts.map(Number);
    const most = Math.max(...counts.map(level)) || 1;
    const [begin, end] = [Number(one.low), Number(one.high)];
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
