// Asks the server every two seconds and shows what it says.

import { Chart } from "./chart.js";
import * as dialogs from "./dialogs.js";
import { Detail, asked, place } from "./detail.js";
import { devices, parse, rates } from "./exposition.js";
import { bytes, count, limits, percent, perSecond, seconds } from "./format.js";
import { Figures, ofItem } from "./history.js";
import * as service from "./service.js";
import { Table, button, link, meter, text } from "./table.js";

const INTERVAL = 2000;
const byId = (id) => document.getElementById(id);
const orDash = (value, format) => (value === null || value === undefined ? "–" : format(value));

const charts = {
  throughput: new Chart(byId("chart-throughput"), (value) => perSecond(bytes(value)), { isBytes: true }),
  requests: new Chart(byId("chart-requests"), (value) => perSecond(count(value))),
  read: new Chart(byId("chart-read"), seconds, { least: 1e-5 }),
  write: new Chart(byId("chart-write"), seconds, { least: 1e-5 }),
  busy: new Chart(byId("chart-busy"), percent, { ceiling: 1 }),
};
const detail = new Detail(dialogs.revoke, () => showDetail().catch(fail));

const tables = {
  reactors: new Table(byId("reactors"), [
    text("Name", (one) => one.name),
    text("Core", (one) => orDash(one.core, String), true),
    text("State", (one) => (one.stalled ? "STALLED" : "turns")),
    meter("Busy", (one) => ({ share: one.share, words: percent(one.share ?? 0), hot: one.share > 0.9 })),
    text("Connections", (one) => count(one.connections), true),
    text("Requests in flight", (one) => count(one.requests_in_flight), true),
    text("Longest turn", (one) => seconds(one.longest_turn_seconds), true),
    text("Sleeps", (one) => count(one.sleeps), true),
  ], (one) => one.name, "no reactors"),
  clients: new Table(byId("clients"), [
    link("Address", (one) => one.address, (one) => place("client", one.address)),
    text("Connections", (one) => count(one.connections), true),
    meter("Gate", (one) => {
      const most = Math.max(1, one.credits_granted, one.credits_requested);
      return {
        share: one.credits_used / most,
        granted: one.credits_granted / most,
        wished: one.credits_requested / most,
        words: `${one.credits_used} of ${one.credits_granted}, wants ${one.credits_requested}`,
      };
    }),
    text("Waiting", (one) => count(one.waiting), true),
    text("Throttled", (one) => orDash(one.rates?.throttled_seconds, (share) => `${share.toFixed(1)} s/s`), true),
    text("Requests", (one) => orDash(one.rates?.requests, (rate) => perSecond(count(rate))), true),
    text("Read", (one) => orDash(one.rates?.bytes_read, (rate) => perSecond(bytes(rate))), true),
    text("Written", (one) => orDash(one.rates?.bytes_written, (rate) => perSecond(bytes(rate))), true),
    text("Limits", (one) => limits(one.limits)),
    button("Change", (one) => ({ words: "Limit…", name: `Limit client ${one.address}` }), dialogs.limitClient),
  ], (one) => one.address, "no clients"),
  nfs4: new Table(byId("nfs4"), [
    text("Client", (one) => one.owner),
    link("Address", (one) => orDash(one.address, String), (one) => (one.address === null ? null : place("client", one.address))),
    text("Version", (one) => orDash(one.minor_version, (minor) => `4.${minor}`)),
    text("Callbacks", (one) => one.callbacks),
    text("Lease", (one) => (one.silent_seconds === null
      ? seconds(one.lease_left_seconds) : `silent for ${seconds(one.silent_seconds)}`)),
    text("Opens", (one) => count(one.opens), true),
    text("Locked ranges", (one) => count(one.locked_ranges), true),
    text("Delegations", (one) => count(one.delegations), true),
    text("Revoked", (one) => count(one.revoked), true),
    button("End", (one) => ({ words: "End…", name: `End client ${one.owner}` }), dialogs.endClient),
  ], (one) => one.id, "no clients of NFS version 4"),
  exports: new Table(byId("exports"), [
    link("Path", (one) => one.path, (one) => place("export", one.path)),
    text("Store", (one) => one.store),
    text("Access", (one) => one.access),
    meter("Used", (one) => {
      const share = one.used_bytes / Math.max(1, one.capacity_bytes ?? 0);
      const words = `${orDash(one.used_bytes, bytes)} of ${orDash(one.capacity_bytes, bytes)}`;
      return { share, words, hot: share > 0.9 };
    }),
    text("Files", (one) => orDash(one.files, count), true),
    text("Requests", (one) => orDash(one.rates?.requests, (rate) => perSecond(count(rate))), true),
    text("Read", (one) => orDash(one.rates?.bytes_read, (rate) => perSecond(bytes(rate))), true),
    text("Written", (one) => orDash(one.rates?.bytes_written, (rate) => perSecond(bytes(rate))), true),
    text("Limits", (one) => limits(one.limits)),
    button("Change", (one) => ({ words: "Limit…", name: `Limit export ${one.path}` }), dialogs.limitExport),
  ], (one) => one.path, "no exports"),
  operations: new Table(byId("operations"), [
    text("Procedure", (one) => `${one.program} ${one.procedure}`),
    text("Now", (one) => perSecond(count(one.requests)), true),
    text("Errors", (one) => perSecond(count(one.errors)), true),
    text("Bytes", (one) => perSecond(bytes(one.bytes)), true),
    text("p50", (one) => orDash(one.p50, seconds), true),
    text("p99", (one) => orDash(one.p99, seconds), true),
    text("p99.9", (one) => orDash(one.p999, seconds), true),
  ], (one) => `${one.program} ${one.procedure}`, "no requests"),
  listeners: new Table(byId("listeners"), [
    text("Address", (one) => one.address),
    text("Provider", (one) => one.provider),
    text("State", (one) => (one.accepting ? "accepts connections" : "does not accept connections")),
    text("Connections", (one) => count(one.connections), true),
    text("Accepted", (one) => count(one.accepted), true),
  ], (one) => `${one.provider} ${one.address}`, "no listeners"),
  devices: new Table(byId("devices"), [
    text("Device", (one) => one.name),
    text("Network", (one) => orDash(one.transport, String)),
    text("State", (one) => (one.inUse ? "in use" : "GONE")),
    text("Ports", (one) => one.ports.join(", ") || "–"),
    text("Registered", (one) => orDash(one.registered, bytes), true),
    text("Removed", (one) => orDash(one.unplugged, count), true),
    text("Errors", (one) => one.errors.join(", ") || "none"),
  ], (one) => one.name, "no RDMA devices"),
};

// Adds to each item what its counters grew by, per second, since it was last seen.
const seen = new Map();
function withRates(kind, items, key, fields, now) {
  const known = seen.get(kind) ?? new Map();
  seen.set(kind, new Map(items.map((item) => [item[key], { item, now }])));
  return items.map((item) => {
    const before = known.get(item[key]);
    if (!before) return item;
    const elapsed = Math.max(1e-3, (now - before.now) / 1000);
    const growth = fields.map((field) => [field, Math.max(0, item[field] - before.item[field]) / elapsed]);
    return { ...item, rates: Object.fromEntries(growth) };
  });
}

let last = null;
function showRates(samples, now) {
  const before = last;
  last = { samples, now };
  const present = devices(samples);
  byId("devices-place").hidden = present.length === 0;
  tables.devices.show(present);
  if (!before) return null;
  const { procedures, reactors, latency } = rates(before.samples, samples, (now - before.now) / 1000);
  const all = [...procedures.values()];
  const sum = (list, of) => list.reduce((total, one) => total + of(one), 0);
  for (const call of ["read", "write"]) {
    // READ and WRITE of version 4 are inside COMPOUND: totals of bytes and latencies of exports have them.
    const moved = sum(all.filter((one) => one.procedure === call), (one) => one.bytes);
    byId(`tile-${call}`).textContent = perSecond(bytes(moved));
    const { p50, p99, p999 } = latency[call] ?? {};
    byId(`tile-${call}-latency`).textContent = orDash(p99, seconds);
    byId(`tile-${call}-more`).textContent = `p50 ${orDash(p50, seconds)}, p99.9 ${orDash(p999, seconds)}`;
  }
  byId("tile-requests").textContent = perSecond(count(sum(all, (one) => one.requests)));
  // Once a procedure has been seen it keeps its row, so that the table does not jump.
  const active = all.filter((one) => one.requests > 0 || tables.operations.rows.has(`${one.program} ${one.procedure}`));
  tables.operations.show(active);
  return reactors;
}

const figures = new Figures();

// Where plots of the chosen time begin: at the start of a server that runs for a shorter time, but a
// minute ago at least.
function begin(points) {
  const to = points.at(-1)?.unix_milliseconds ?? Date.now();
  const start = Math.min(points[0]?.unix_milliseconds ?? to, to - 60e3);
  return Math.max(start, to - 1000 * Number(byId("span").value));
}

function showPast(points) {
  const to = points.at(-1)?.unix_milliseconds ?? Date.now();
  const from = begin(points);
  const quantiles = (one) => ({
    p50: one?.p50_seconds ?? null, p99: one?.p99_seconds ?? null, "p99.9": one?.p999_seconds ?? null,
  });
  for (const [name, of] of [
    ["throughput", (one) => ({ read: one.bytes_read, written: one.bytes_written })],
    ["requests", (one) => ({ requests: one.requests, errors: one.errors })],
    ["read", (one) => quantiles(one.read)],
    ["write", (one) => quantiles(one.write)],
    ["busy", (one) => Object.fromEntries(one.reactors.map(({ name: reactor, busy }) => [reactor, busy]))],
  ]) {
    charts[name].show(points.map((one) => ({ time: one.unix_milliseconds, values: of(one) })), from, to);
  }
}

const listed = { client: [], export: [] };
let itemFigures = null;
async function showDetail() {
  const wanted = asked();
  if (!wanted) return detail.hide();
  const { kind, name } = wanted;
  const own = ofItem(kind, name);
  if (itemFigures?.query !== own.query) itemFigures = own;
  const history = itemFigures;
  const item = listed[kind].find((one) => (kind === "client" ? one.address : one.path) === name);
  let connections = null;
  let states = null;
  if (kind === "client") {
    const { connections: all } = await service.json("api/v1/connections");
    connections = all.filter(({ peer }) => peer.replace(/:\d+$/, "").replace(/^\[|\]$/g, "") === name);
  }
  // An address that is none, as someone may have written it, has nothing.
  const unlessInvalid = (asking, nothing) => asking.catch((error) => {
    if (error.status === 422) return nothing;
    throw error;
  });
  const points = await unlessInvalid(history.refresh(), []);
  if (kind === "client") {
    states = await unlessInvalid(detail.states.ask(name), { states: [], next: null });
    // Another page is wanted by now, and shown when it is there.
    if (states === null) return undefined;
  }
  // Another one may have been asked for meanwhile.
  if (history !== itemFigures) return undefined;
  const { rates: _, ...told } = item ?? {};
  return detail.show(wanted, item && told, points, begin(points), connections, states);
}

let drain = { phase: "serving", remaining_seconds: null };
let stalled = [];
let listens = true;
function showState() {
  const state = byId("state");
  const [first] = stalled;
  const serving = listens ? "ready" : "no RDMA listener";
  const words = drain.phase === "serving" ? serving : drain.phase;
  state.textContent = first ? `${first.name} stalled for ${seconds(first.seconds)}` : words;
  state.className = `state ${!first && listens && drain.phase === "serving" ? "good" : "bad"}`;
  const active = drain.phase !== "serving";
  byId("draining").hidden = !active;
  byId("drain").disabled = drain.phase === "drained";
  const remaining = drain.remaining_seconds === null ? "" : `, ${seconds(drain.remaining_seconds)} to the deadline`;
  byId("drain-progress").textContent = active
    ? `${drain.phase}: ${drain.connections} connections, ${drain.requests_in_flight} requests in flight, `
      + `${drain.exposures} replies to be fetched${remaining}`
    : "";
}

// After a restart, until clients have reclaimed their opens and locks.
function showGrace({ active, left_seconds: left, waits_for: clients, awaited }) {
  const some = awaited.slice(0, 3).map((one) => one.owner);
  if (clients > some.length) some.push(`${count(clients - some.length)} more`);
  const waits = some.length > 0 ? ` It waits for ${some.join(", ")}.` : "";
  byId("grace-progress").textContent = "Grace period of NFS version 4: clients reclaim opens and locks from before the restart, "
    + `and get no new ones, for ${seconds(left)} at most.${waits}`;
  byId("grace").hidden = !active;
}

// What a restart would change: keys that wait for one, and keys that are not in the file.
function showPending({ restart_required: waiting, file }) {
  const keys = (list) => list.map((one) => one.path).join(", ");
  const parts = [];
  if (waiting.length > 0) parts.push(`Waiting for a restart: ${keys(waiting)}.`);
  if (file && file.unsaved.length > 0) parts.push(`Not in ${file.path}, so that a restart changes it: ${keys(file.unsaved)}.`);
  if (file && file.edited) parts.push(`${file.path} was edited since the server read it.`);
  byId("unsaved").textContent = parts.join(" ");
  byId("unsaved").hidden = parts.length === 0;
}

const moved = ["requests", "bytes_read", "bytes_written"];
let shares = null;

// What is asked, and what becomes of each answer.
const PARTS = [
  [() => service.text("metrics"), (scrape, now) => { shares = showRates(parse(scrape), now) ?? shares; }],
  [() => service.json("api/v1/reactors"), ({ reactors }) => tables.reactors.show(
    reactors.map((one) => ({ ...one, share: shares?.get(String(one.core))?.share ?? 0 })))],
  [() => figures.refresh(), showPast],
  [() => service.json("api/v1/clients"), ({ clients }, now) => {
    listed.client = withRates("clients", clients, "address", [...moved, "throttled_seconds"], now);
    tables.clients.show(listed.client);
    const connections = clients.reduce((sum, one) => sum + one.connections, 0);
    byId("tile-clients").textContent = `${clients.length} / ${connections}`;
  }],
  [() => service.json("api/v1/nfs4/clients?limit=200"), ({ clients }) => tables.nfs4.show(clients)],
  [() => service.json("api/v1/nfs4/grace"), showGrace],
  [() => service.json("api/v1/exports"), ({ exports: trees }, now) => {
    listed.export = withRates("exports", trees, "path", moved, now);
    tables.exports.show(listed.export);
  }],
  [() => service.json("api/v1/drain"), (answer) => { drain = answer; showState(); }],
  [() => service.json("api/v1/config/pending"), showPending],
  [() => service.identify(), dialogs.showLock],
  // Last, as it answers even where reactors do not.
  [() => service.stalled(), (answer) => { stalled = answer; showState(); }],
  [() => service.json("api/v1/listeners"), ({ listeners }) => {
    // /readyz would say so, too, but a browser logs its 503.
    listens = listeners.some((one) => one.index !== null && one.provider !== "tcp");
    tables.listeners.show(listeners);
    showState();
  }],
];

// One part that does not answer leaves the others live.
async function refresh() {
  const answers = await Promise.allSettled(PARTS.map(([ask]) => ask()));
  const now = performance.now();
  answers.forEach(({ status, value }, index) => {
    if (status === "fulfilled") PARTS[index][1](value, now);
  });
  const detailed = await Promise.allSettled([showDetail()]);
  const failed = [...answers, ...detailed].filter(({ status }) => status === "rejected");
  if (failed.length > 0) fail(failed[0].reason, failed.length >= PARTS.length);
  else byId("banner").hidden = true;
}

function fail(error, all) {
  const banner = byId("banner");
  banner.textContent = error instanceof service.Refusal ? error.message : `The server does not answer (${error.message}). Trying again.`;
  banner.hidden = false;
  if (!all) return;
  byId("state").textContent = "no answer";
  byId("state").className = "state bad";
}

let paused = false;
async function run() {
  // A hidden page sends no requests.
  if (!paused && !document.hidden) {
    await refresh();
    document.documentElement.dataset.refreshed = String(Number(document.documentElement.dataset.refreshed ?? 0) + 1);
  }
  setTimeout(run, INTERVAL);
}

function wireTheme() {
  const choice = byId("theme");
  const show = () => { document.documentElement.dataset.theme = choice.value; };
  try { choice.value = localStorage.getItem("millrace-theme") ?? "auto"; } catch { /* no storage: auto */ }
  choice.addEventListener("change", () => {
    show();
    try { localStorage.setItem("millrace-theme", choice.value); } catch { /* not kept then */ }
  });
  show();
}

wireTheme();
byId("span").addEventListener("change", () => {
  showPast(figures.points);
  showDetail().catch(fail);
});
window.addEventListener("hashchange", () => showDetail().catch(fail));
dialogs.wire(fail);
byId("pause").addEventListener("click", () => {
  paused = !paused;
  byId("pause").setAttribute("aria-pressed", String(paused));
  byId("pause").textContent = paused ? "Go on" : "Pause";
});
service.json("api/v1/version").then(
  ({ version, profile }) => { byId("version").textContent = profile === "release" ? version : `${version} (${profile})`; },
  () => {},
);
run();
