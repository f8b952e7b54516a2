// What was before: the last hour as the server keeps it, and what this page has seen of each item.

import * as service from "./service.js";

const HOUR = 3600e3;
// Ten minutes, and so many points at the page's pace.
const SEEN_FOR = 600e3;
const SEEN_MOST = 300;

// The figures of the last hour, the oldest first.
export class Figures {
  points = [];

  async refresh() {
    const after = this.points.at(-1)?.unix_milliseconds ?? 0;
    const { points } = await service.json(`api/v1/figures?after=${after}`);
    const latest = points.at(-1)?.unix_milliseconds ?? after;
    this.points = [...this.points, ...points].filter((one) => one.unix_milliseconds > latest - HOUR);
    return this.points;
  }
}

// The latest values of items, by their names.
export class Trails {
  byName = new Map();

  // Adds values of the moment. Items that have not been there for a while are forgotten.
  add(items) {
    const time = Date.now();
    for (const [name, points] of this.byName) {
      if (points.at(-1).time < time - SEEN_FOR) this.byName.delete(name);
    }
    for (const [name, values] of items) {
      const points = this.byName.get(name) ?? [];
      points.push({ time, values });
      if (points.length > SEEN_MOST) points.shift();
      this.byName.set(name, points);
    }
  }

  of(name) {
    return this.byName.get(name) ?? [];
  }
}
