// What was before: the last hour as the server keeps it, of all and of the item that is shown.

import * as service from "./service.js";

const HOUR = 3600e3;

// The figures of the last hour, the oldest first. `query` says of what: nothing for the whole service.
export class Figures {
  constructor(query = "") {
    Object.assign(this, { query, points: [] });
  }

  async refresh() {
    const after = this.points.at(-1)?.unix_milliseconds ?? 0;
    const { points } = await service.json(`api/v1/figures?after=${after}${this.query}`);
    // Of two requests at once, the later answer brings nothing new.
    const known = this.points.at(-1)?.unix_milliseconds ?? 0;
    const all = [...this.points, ...points.filter((one) => one.unix_milliseconds > known)];
    const latest = all.at(-1)?.unix_milliseconds ?? 0;
    this.points = all.filter((one) => one.unix_milliseconds > latest - HOUR);
    return this.points;
  }
}

// The figures of one export or client.
export const ofItem = (kind, name) => new Figures(`&${kind}=${encodeURIComponent(name)}`);
