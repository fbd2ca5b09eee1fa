// Colours: a ramp for magnitudes, a ramp for signed values, a colour for each type.

const VIRIDIS = [
  [68, 1, 84], [72, 40, 120], [62, 74, 137], [49, 104, 142], [38, 130, 142],
  [31, 158, 137], [53, 183, 121], [110, 206, 88], [181, 222, 43], [253, 231, 37],
];
const TYPES = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8a8f98", "#b8a800"];

const typeColor = (at) => TYPES[at % TYPES.length];

function theme(name) {
  return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
}

function rgbOf(hex) {
  const value = parseInt(hex.slice(1), 16);
  return [value >> 16, (value >> 8) & 255, value & 255];
}

const cssOf = (rgb) => `rgb(${rgb.map(Math.round).join(",")})`;
const mixed = (one, other, part) => one.map((value, i) => value + (other[i] - value) * part);

function viridis(part) {
  const at = Math.min(Math.max(part, 0), 1) * (VIRIDIS.length - 1);
  const low = Math.min(Math.floor(at), VIRIDIS.length - 2);
  return mixed(VIRIDIS[low], VIRIDIS[low + 1], at - low);
}

// Return the colours of numbers from -1 to 1; the middle is close to the page's background.
function diverging() {
  const [low, middle, high] = ["low", "neutral", "high"].map((name) => rgbOf(theme(name)));
  return (part) => {
    const size = Math.min(Math.abs(part), 1) ** 0.8;
    return mixed(middle, part < 0 ? low : high, size);
  };
}

// Return a canvas at the resolution of its screen, and its context in units of the page.
function sharp(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.max(Math.round(width * ratio), 1);
  canvas.height = Math.max(Math.round(height * ratio), 1);
  canvas.style.width = width + "px";
  canvas.style.height = height + "px";
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  context.clearRect(0, 0, width, height);
  return context;
}

const MONO = '11.5px ui-monospace, "SF Mono", Consolas, "DejaVu Sans Mono", monospace';
const SANS = '11.5px system-ui, "DejaVu Sans", sans-serif';

// Return a name as lines of a width, cut in the middle if it needs more lines.
function inLines(context, name, width, most) {
  const letter = context.measureText("m").width;
  const room = Math.max(Math.floor(width / letter), 1);
  if (name.length > room * most) {
    if (most < 2) return [fitted(context, name, width)];
    const tail = room * (most - 1);
    return [name.slice(0, room - 1) + "\u2026", ...inLines(context, name.slice(-tail), width, most - 1)];
  }
  const lines = [];
  for (let at = 0; at < name.length; at += lines[lines.length - 1].length) {
    const line = name.slice(at, at + room);
    const isLast = at + room >= name.length;
    const end = 1 + Math.max(...[".", "_", "/"].map((mark) => line.lastIndexOf(mark)));
    lines.push(isLast || 2 * end < room ? line : line.slice(0, end));
  }
  return lines.slice(-most);
}

// Return a text cut in the middle to fit a width: names differ at their ends.
function fitted(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let kept = Math.max(Math.floor((text.length * width) / context.measureText(text).width) - 1, 2);
  for (; kept > 2; kept--) {
    const tail = Math.ceil(kept * 0.6);
    const shown = text.slice(0, kept - tail) + "\u2026" + text.slice(text.length - tail);
    if (context.measureText(shown).width <= width) return shown;
  }
  return "\u2026";
}
