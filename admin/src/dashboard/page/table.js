// Tables whose rows stay where they are while their figures change, so that the keyboard's focus
// stays on a row's button.

// `columns` is a list of { heading, number?, fill(cell, item) }; `key` names an item's row.
export class Table {
  constructor(table, columns, key, empty) {
    Object.assign(this, { columns, key, empty, rows: new Map() });
    const head = table.createTHead().insertRow();
    for (const { heading, number } of columns) {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.textContent = heading;
      cell.classList.toggle("number", Boolean(number));
      head.append(cell);
    }
    this.body = table.createTBody();
    this.show([]);
  }

  show(items) {
    const gone = new Set(this.rows.keys());
    items.forEach((item, index) => {
      const key = this.key(item);
      gone.delete(key);
      const row = this.rows.get(key) ?? this.begin(key);
      row.item = item;
      this.columns.forEach(({ fill }, column) => fill(row.element.cells[column], item));
      // Moved only when out of place: a row that moves loses the focus.
      if (this.body.rows[index] !== row.element) this.body.insertBefore(row.element, this.body.rows[index] ?? null);
    });
    for (const key of gone) {
      this.rows.get(key).element.remove();
      this.rows.delete(key);
    }
    this.sayEmpty();
  }

  begin(key) {
    const element = document.createElement("tr");
    for (const { number } of this.columns) {
      element.insertCell().classList.toggle("number", Boolean(number));
    }
    const row = { element };
    this.rows.set(key, row);
    return row;
  }

  sayEmpty() {
    this.note?.remove();
    this.note = undefined;
    if (this.rows.size > 0) return;
    this.note = this.body.insertRow();
    const cell = this.note.insertCell();
    cell.colSpan = this.columns.length;
    cell.className = "empty";
    cell.textContent = this.empty;
  }
}

// A column of text.
export const text = (heading, of, number) => ({
  heading,
  number,
  fill(cell, item) {
    const value = String(of(item));
    if (cell.textContent !== value) cell.textContent = value;
  },
});

// A column of links; `to` gives where one leads, or null for a word that is none.
export const link = (heading, of, to) => ({
  heading,
  fill(cell, item) {
    const inside = cell.firstChild ?? cell.appendChild(document.createElement("a"));
    if (inside.textContent !== of(item)) inside.textContent = of(item);
    const target = to(item);
    if (target === null) inside.removeAttribute("href");
    else inside.setAttribute("href", target);
  },
});

// A column with a bar and words; `of` gives { share, words, hot }.
export const meter = (heading, of) => ({
  heading,
  fill(cell, item) {
    const { share, granted, wished, words, hot } = of(item);
    if (!cell.firstChild) {
      const bar = document.createElement("span");
      bar.className = "meter";
      bar.append(...["wished", "granted", "used"].map((name) => {
        const part = document.createElement("i");
        part.className = name;
        return part;
      }).sort((one, other) => (one.className === "wished") - (other.className === "wished")));
      cell.append(bar, document.createElement("span"));
    }
    const [bar, label] = cell.children;
    const width = (name, part) => {
      bar.querySelector(`.${name}`).style.width = `${Math.min(100, 100 * (part ?? 0))}%`;
    };
    width("used", share);
    width("granted", granted);
    width("wished", wished);
    bar.querySelector(".wished").hidden = wished === undefined;
    bar.classList.toggle("hot", Boolean(hot));
    if (label.textContent !== words) label.textContent = words;
  },
});

// A column with a button; `label` gives { words, name }, or null for an item without one.
export const button = (heading, label, press) => ({
  heading,
  fill(cell, item) {
    let inside = cell.firstChild;
    if (!inside) {
      inside = document.createElement("button");
      inside.type = "button";
      inside.addEventListener("click", () => press(inside.item));
      cell.append(inside);
    }
    inside.item = item;
    const told = label(item);
    inside.hidden = told === null;
    if (told === null) return;
    inside.textContent = told.words;
    inside.setAttribute("aria-label", told.name);
  },
});
