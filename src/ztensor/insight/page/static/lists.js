// Virtual lists: only visible rows are in the document.

const ROW = 26;
const TALLEST = 12e6; // height limit of browsers; taller lists scale their scrolling
const TAIL = 14; // last letters of a name, never cut

class VirtualList {
  // Args: the scroll box; `fill(row element, index)`; `choose(index, event)`; a prefix for ids.
  constructor(box, { fill, choose, key, role, head }) {
    Object.assign(this, { box, fill, choose, key: key || (() => false), role, count: 0, active: 0, tall: ROW });
    this.top = head ? 28 : 0;
    this.live = new Map();
    this.space = element("div");
    this.space.style.position = "relative";
    if (role === "row") this.space.setAttribute("role", "rowgroup");
    else this.space.setAttribute("role", "none");
    if (head) box.append(head);
    box.append(this.space);
    box.addEventListener("scroll", () => this.later());
    box.addEventListener("keydown", (event) => this.pressed(event));
    box.addEventListener("focus", () => this.move(this.active, false));
    this.space.addEventListener("click", (event) => {
      const row = event.target.closest(".row");
      if (row) { this.move(Number(row.dataset.at), false); this.choose(this.active, event); }
    });
    new ResizeObserver(() => this.later()).observe(box);
  }

  set(count) {
    this.count = count;
    this.height = Math.min(count * this.tall, TALLEST);
    this.space.style.height = this.height + "px";
    this.active = Math.min(this.active, Math.max(count - 1, 0));
    if (this.role === "row") this.box.setAttribute("aria-rowcount", count + 1);
    this.redraw();
  }

  redraw() {
    for (const row of this.live.values()) row.remove();
    this.live.clear();
    this.draw();
  }

  later() {
    if (this.waits) return;
    this.waits = true;
    requestAnimationFrame(() => { this.waits = false; this.draw(); });
  }

  room() { return Math.max(this.box.clientHeight - this.top, this.tall); }

  // Return the number of the first visible row, with its fraction.
  seen() {
    const scaled = this.height - this.room();
    const true_ = this.count * this.tall - this.room();
    const part = scaled > 0 ? true_ / scaled : 1;
    return (Math.min(this.box.scrollTop, Math.max(scaled, 0)) * part) / this.tall;
  }

  draw() {
    const first = this.seen();
    const begin = Math.max(Math.floor(first) - 6, 0);
    const end = Math.min(Math.ceil(first + this.room() / this.tall) + 6, this.count);
    // Read once, before any change: later reads would each force a layout.
    const top = this.count * this.tall > TALLEST ? this.box.scrollTop - first * this.tall : 0;
    for (const [at, row] of this.live) {
      if (at < begin || at >= end) { row.remove(); this.live.delete(at); }
    }
    const added = document.createDocumentFragment();
    for (let at = begin; at < end; at++) {
      let row = this.live.get(at);
      if (!row) {
        row = element("div", "row");
        row.setAttribute("role", this.role);
        row.id = `${this.box.id}-${at}`;
        row.dataset.at = at;
        this.fill(row, at);
        this.live.set(at, row);
        added.append(row);
      }
      row.style.top = top + at * this.tall + "px";
      row.style.height = this.tall + "px";
      row.classList.toggle("active", at === this.active);
    }
    this.space.append(added);
    const active = this.live.get(this.active);
    if (active) this.box.setAttribute("aria-activedescendant", active.id);
    else this.box.removeAttribute("aria-activedescendant");
  }

  // Args: the row; whether to scroll to it; its position in the box, as a fraction, if it scrolls.
  move(at, scrolls = true, part = null) {
    if (!this.count) return;
    this.active = Math.min(Math.max(at, 0), this.count - 1);
    if (scrolls) {
      const first = this.seen();
      const room = this.room() / this.tall;
      let to = first;
      if (this.active < first) to = this.active;
      else if (this.active + 1 > first + room) to = this.active + 1 - room;
      if (to !== first && part !== null) to = Math.max(this.active - room * part, 0);
      if (to !== first) {
        const scaled = this.height - this.room();
        const true_ = this.count * this.tall - this.room();
        this.box.scrollTop = true_ > 0 ? (to * this.tall * scaled) / true_ : 0;
      }
    }
    this.draw();
  }

  pressed(event) {
    if (event.altKey || event.ctrlKey || event.metaKey || event.target !== this.box) return;
    const page = Math.max(Math.floor(this.room() / this.tall) - 1, 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page };
    if (event.key in steps) this.move(this.active + steps[event.key]);
    else if (event.key === "Home") this.move(0);
    else if (event.key === "End") this.move(this.count - 1);
    else if (event.key === "Enter" || event.key === " ") this.choose(this.active, event);
    else if (!this.key(event, this.active)) return;
    event.preventDefault();
  }
}

// Return a name cut before its end, as names differ there.
function cutName(name, className = "name") {
  const box = element("span", "cut " + className);
  box.title = name;
  box.append(element("span", "", name.slice(0, -TAIL)), element("span", "", name.slice(-TAIL)));
  return box;
}

const OPENED = 200; // most results of a search that open the tree

class Tree {
  constructor(box, rows, choose) {
    this.rows = rows;
    this.roots = childrenOf(rows, 0, rows.count, 0);
    if (this.roots.length === 1 && !this.roots[0].leaf) this.open(this.roots[0]);
    this.list = new VirtualList(box, {
      role: "treeitem",
      fill: (row, at) => this.fill(row, this.shown[at]),
      choose: (at, event) => {
        const node = this.shown[at];
        if (!node.leaf) this.toggle(node, event.type === "click" ? !node.open : node.open);
        choose(node);
      },
      key: (event, at) => this.pressed(event, at),
    });
    this.refresh();
  }

  // Show only nodes with filtered rows; `sums[row]` of these are before a row. Few results are opened.
  filter(sums) {
    this.sums = sums;
    const all = sums ? sums[this.rows.count] : 0;
    const walk = (nodes) => {
      for (const node of nodes) {
        if (node.leaf || !this.count(node)) continue;
        this.open(node);
        walk(node.children);
      }
    };
    if (sums && all && all <= OPENED) walk(this.roots);
    this.refresh();
  }

  count(node) { return this.sums ? this.sums[node.last] - this.sums[node.first] : 1; }

  open(node) {
    node.open = true;
    node.children = node.children || childrenOf(this.rows, node.first, node.last, node.depth + 1);
    // A tensor with the name of a parent is its first child.
    if (!node.own) {
      node.own = true;
      const name = this.rows.names[node.first];
      if (partOf(name, node.depth + 1) === null) {
        const leaf = { first: node.first, last: node.first + 1, depth: node.depth + 1, leaf: true };
        leaf.text = "(itself)";
        leaf.nbytes = this.rows.nbytes(node.first);
        node.children.unshift(leaf);
      }
    }
  }

  toggle(node, open) {
    if (node.open === open) return;
    if (open) this.open(node); else node.open = false;
    this.refresh();
  }

  refresh() {
    this.shown = [];
    const walk = (nodes, level, parent) => {
      for (const node of nodes) {
        if (!this.count(node)) continue;
        node.level = level;
        node.parent = parent;
        this.shown.push(node);
        if (node.open) walk(node.children, level + 1, node);
      }
    };
    walk(this.roots, 1, null);
    this.list.set(this.shown.length);
  }

  fill(row, node) {
    row.classList.add("tree-row");
    row.setAttribute("aria-level", node.level);
    if (!node.leaf) row.setAttribute("aria-expanded", String(node.open));
    row.style.paddingLeft = Math.min(node.level - 1, 12) * 14 + "px";
    const twist = element("span", "twist", node.leaf ? "" : node.open ? "\u25be" : "\u25b8");
    twist.setAttribute("aria-hidden", "true");
    row.append(twist, cutName(nameText(node.text)), element("span", "size", sizeText(node.nbytes)));
  }

  pressed(event, at) {
    const node = this.shown[at];
    if (event.key === "ArrowRight" && !node.leaf) this.toggle(node, true);
    else if (event.key === "ArrowLeft" && node.open) this.toggle(node, false);
    else if (event.key === "ArrowLeft" && node.parent) {
      this.list.move(this.shown.indexOf(node.parent));
    } else return false;
    return true;
  }
}
