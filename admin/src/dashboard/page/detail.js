// One export or one client: all that the server says of it, and lines of what it does.

import { Chart } from "./chart.js";
import { bytes, count, perSecond, seconds } from "./format.js";
import { ClientStates } from "./states.js";
import { Table, text } from "./table.js";

const byId = (id) => document.getElementById(id);

export const place = (kind, name) => `#${kind}=${encodeURIComponent(name)}`;

// What the address of the page asks for: { kind, name }, or null.
export function asked() {
  const match = /^#(export|client)=(.+)$/.exec(location.hash);
  try {
    return match ? { kind: match[1], name: decodeURIComponent(match[2]) } : null;
  } catch {
    return null;
  }
}

// A value in words, by the unit that its field's name ends with.
function words(field, value) {
  if (Array.isArray(value)) return value.map((one) => words(field, one)).join(", ") || "none";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value !== "number") return String(value);
  if (/bytes/.test(field)) return bytes(value);
  return field.endsWith("_seconds") ? seconds(value) : count(value);
}

// The fields of an item that have a value, and of items inside it, as [name, words].
function facts(item, within = "") {
  return Object.entries(item).flatMap(([field, value]) => {
    const name = `${within}${field.replace(/_(bytes|seconds)$/, "").replaceAll("_", " ")}`;
    if (value === null || value === undefined) return [];
    if (typeof value === "object" && !Array.isArray(value)) return facts(value, `${name}, `);
    return [[name, words(field, value)]];
  });
}

export class Detail {
  // `revoke` is called with a state to be revoked, `turned` when another page of states is wanted.
  constructor(revoke, turned) {
    this.section = byId("detail");
    const charts = {
      throughput: new Chart(byId("detail-throughput"), (value) => perSecond(bytes(value)), { isBytes: true }),
      requests: new Chart(byId("detail-requests"), (value) => perSecond(count(value))),
      latency: new Chart(byId("detail-latency"), seconds, { least: 1e-5 }),
    };
    const connections = new Table(byId("detail-connections"), [
      text("Connection", (one) => one.id, true),
      text("From", (one) => one.peer),
      text("Provider", (one) => [one.provider, one.device].filter(Boolean).join(", ")),
      text("Core", (one) => one.core ?? "–", true),
      text("Age", (one) => seconds(one.age_seconds), true),
      text("In flight", (one) => count(one.requests_in_flight), true),
      text("Requests", (one) => count(one.requests), true),
      text("p50", (one) => (one.latency ? seconds(one.latency.p50_seconds) : "–"), true),
      text("p99", (one) => (one.latency ? seconds(one.latency.p99_seconds) : "–"), true),
    ], (one) => one.id, "no connections");
    const states = new ClientStates(revoke, turned);
    Object.assign(this, { charts, connections, states, shown: null });
  }

  // Shows the item that was asked for, with its figures from a time on. `connections` and
  // `states` are null for exports, which have none.
  show({ kind, name }, item, points, from, connections, states) {
    const title = `${kind === "export" ? "Export" : "Client"} ${name}`;
    this.section.hidden = false;
    byId("h-detail").textContent = title;
    if (this.shown !== title) {
      this.shown = title;
      // Lines of another item would stay as names.
      for (const chart of Object.values(this.charts)) chart.show([], 0, 1);
      this.section.scrollIntoView();
    }
    byId("detail-gone").hidden = item !== undefined;
    const list = byId("detail-facts");
    list.replaceChildren(...facts(item ?? {}).map(([field, value]) => {
      const pair = document.createElement("div");
      const [term, fact] = ["dt", "dd"].map((tag) => pair.appendChild(document.createElement(tag)));
      [term.textContent, fact.textContent] = [field, value];
      return pair;
    }));
    const p99 = (one) => one?.p99_seconds ?? null;
    const to = points.at(-1)?.unix_milliseconds ?? Date.now();
    for (const [chart, of] of [
      ["throughput", (one) => ({ read: one.bytes_read, written: one.bytes_written })],
      ["requests", (one) => ({ requests: one.requests, errors: one.errors })],
      ["latency", (one) => ({ read: p99(one.read), write: p99(one.write), other: p99(one.other) })],
    ]) {
      this.charts[chart].show(points.map((one) => ({ time: one.unix_milliseconds, values: of(one) })), from, to);
    }
    byId("detail-no-history").hidden = points.length > 0;
    byId("detail-latency").parentElement.hidden = kind !== "export";
    byId("detail-of-client").hidden = connections === null;
    byId("detail-states-of-client").hidden = states === null;
    this.connections.show(connections ?? []);
    if (states !== null) this.states.show(states);
  }

  hide() {
    this.section.hidden = true;
    this.shown = null;
  }
}
