// Requests to the server: sent on demand, aborted when no longer needed.

const GONE = "The server has ended. Run `ztensor view` again.";

async function ask(path, signal) {
  let response;
  try {
    response = await fetch(path, { signal });
  } catch (error) {
    throw error.name === "AbortError" ? error : new Error(GONE);
  }
  const found = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(found.error || `The server refused: ${response.status}.`);
  return found;
}

function problem(text) {
  byId("problem").textContent = text;
  byId("problem").hidden = false;
}

// A stream as long as the page lives: its end shows each side that the other has gone.
async function stayAlive() {
  try {
    const stream = (await fetch("alive")).body.getReader();
    while (!(await stream.read()).done);
  } catch { /* said below */ }
  problem(GONE);
}

// The button that examines all tensors, its progress, and the button to stop.
class Examination {
  constructor(box, nbytes) {
    Object.assign(this, { box, nbytes });
    this.offer("Findings and the colours of layers need all values.");
  }

  offer(text) {
    const button = element("button", "", `Look at all tensors (${sizeText(this.nbytes)})`);
    button.type = "button";
    button.id = "examine";
    button.addEventListener("click", () => this.run());
    this.box.replaceChildren(element("p", "note", text), button);
  }

  async run() {
    const control = new AbortController();
    const bar = element("progress");
    const text = element("span", "note", "Reading\u2026");
    const stop = element("button", "", "Stop");
    stop.type = "button";
    stop.addEventListener("click", () => control.abort());
    bar.setAttribute("aria-label", "Bytes that were looked at");
    const line = element("div", "line");
    line.append(bar, text, stop);
    this.box.replaceChildren(line);
    stop.focus();
    try {
      await this.follow(control.signal, (done, total) => {
        bar.max = total || 1;
        bar.value = done;
        text.textContent = `${sizeText(done)} of ${sizeText(total || this.nbytes)}`;
      });
      location.reload(); // the tensor stays chosen; the new page has everything
    } catch (error) {
      this.offer(error.name === "AbortError" ? "Stopped." : error.message);
      byId("examine").focus();
    }
  }

  async follow(signal, tell) {
    const response = await fetch("examine", { signal }).catch((error) => {
      throw error.name === "AbortError" ? error : new Error(GONE);
    });
    const stream = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await stream.read();
      if (done) throw new Error(GONE);
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) {
        const found = JSON.parse(line);
        if (found.whole) return;
        if (found.error) throw new Error(found.error);
        tell(found.done, found.total);
      }
    }
  }
}

// Singular values, on demand.
class SingularValues {
  constructor(path, signal) {
    this.section = element("section");
    this.path = path;
    this.signal = signal;
    this.section.append(element("h3", "", "Singular values"));
    this.body = element("div");
    this.section.append(this.body);
    this.offer("");
  }

  offer(text) {
    const button = element("button", "", "Compute");
    button.type = "button";
    button.className = "singular";
    button.addEventListener("click", () => this.run());
    this.body.replaceChildren(...(text ? [element("p", "note", text)] : []), button);
  }

  async run() {
    this.body.replaceChildren(element("p", "note", "Reading\u2026"));
    try {
      this.found = await ask(this.path, this.signal);
    } catch (error) {
      if (error.name !== "AbortError") this.offer(error.message);
      return;
    }
    const { values, count, is_exact: exact, stable_rank: rank } = this.found;
    const canvas = element("canvas");
    const facts = `${exact ? `all ${countText(count)}` : `the first ${count}, each at least so large`}; ` +
      `largest ${numberText(values[0])}, ${exact ? "smallest" : "last"} ` +
      `${numberText(values[values.length - 1])}; stable rank ${numberText(rank)}`;
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `Singular values on a logarithmic scale: ${facts}`);
    this.canvas = canvas;
    this.body.replaceChildren(canvas, element("p", "note singular-facts", facts));
    this.draw();
  }

  draw() {
    if (!this.canvas || !this.canvas.parentElement) return;
    const values = this.found.values.map(Number);
    const [width, height] = [this.body.clientWidth, 110];
    const context = sharp(this.canvas, width, height);
    const top = Math.log10(values[0] || 1);
    const low = Math.max(Math.log10(Math.max(Math.min(...values), 1e-300)), top - 8);
    const span = top - low || 1;
    context.strokeStyle = theme("bar");
    context.lineWidth = 1.5;
    context.beginPath();
    values.forEach((value, at) => {
      const part = (Math.log10(Math.max(value, 1e-300)) - low) / span;
      const x = (at / Math.max(values.length - 1, 1)) * (width - 2) + 1;
      context.lineTo(x, height - 4 - Math.max(part, 0) * (height - 10));
    });
    context.stroke();
  }
}
