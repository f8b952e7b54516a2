// Figures of the moment out of two scrapes: counters become rates, histograms quantiles.

const LINE = /^(millrace_[a-z_]+)(?:\{(.*)\})? ([^ ]+)$/;
const LABEL = /([a-z_]+)="((?:[^"\\]|\\.)*)"/g;
const WANTED = new Set([
  "millrace_rpc_requests_total",
  "millrace_rpc_errors_total",
  "millrace_rpc_data_bytes_total",
  "millrace_rpc_duration_seconds_bucket",
  "millrace_export_duration_seconds_bucket",
  "millrace_reactor_busy_seconds_total",
  "millrace_reactor_idle_seconds_total",
  "millrace_rdma_device_in_use",
  "millrace_rdma_device_info",
  "millrace_rdma_device_registered_bytes",
  "millrace_rdma_device_unplugged_total",
  "millrace_rdma_device_events_total",
  "millrace_rdma_port_active",
]);

// The samples of a scrape that this page shows: a list of [name, labels, value].
export function parse(text) {
  const samples = [];
  for (const line of text.split("\n")) {
    const match = LINE.exec(line);
    if (!match || !WANTED.has(match[1])) continue;
    const labels = {};
    for (const [, name, value] of (match[2] ?? "").matchAll(LABEL)) labels[name] = value;
    samples.push([match[1], labels, Number(match[3])]);
  }
  return samples;
}

// The labels that this page tells apart.
const LABELS = ["core", "program", "procedure", "call", "le", "export"];
const key = (name, labels) => [name, ...LABELS.map((label) => labels[label] ?? "")].join("\0");
const labelsOf = ([, ...values]) => Object.fromEntries(LABELS.map((label, index) => [label, values[index]]));

// Sums of samples by what this page tells apart.
function sums(samples) {
  const table = new Map();
  for (const [name, labels, value] of samples) {
    const at = key(name, labels);
    table.set(at, (table.get(at) ?? 0) + value);
  }
  return table;
}

// The bound that a share of the observations between two scrapes stays within; null without any.
function quantile(buckets, share) {
  buckets.sort((one, other) => one[0] - other[0]);
  const total = buckets.at(-1)?.[1] ?? 0;
  if (total <= 0) return null;
  const found = buckets.find(([, below]) => below >= share * total);
  const finite = buckets.filter(([bound]) => Number.isFinite(bound)).at(-1);
  return Number.isFinite(found[0]) ? found[0] : (finite?.[0] ?? null);
}

const quantiles = (buckets) => ({
  p50: quantile(buckets, 0.5),
  p99: quantile(buckets, 0.99),
  p999: quantile(buckets, 0.999),
});

// Rates between two scrapes that lie `elapsed` seconds apart.
export function rates(before, after, elapsed) {
  const old = sums(before);
  const difference = (name, labels, value) =>
    // A server that has started anew counts from zero.
    value >= (old.get(key(name, labels)) ?? 0) ? value - (old.get(key(name, labels)) ?? 0) : value;
  const procedures = new Map();
  const reactors = new Map();
  const calls = new Map();
  const entry = (map, name, make) => map.get(name) ?? map.set(name, make()).get(name);
  for (const [at, value] of sums(after)) {
    const parts = at.split("\0");
    const [name] = parts;
    if (name.startsWith("millrace_rdma")) continue;
    const labels = labelsOf(parts);
    const { core, program, procedure, call } = labels;
    const bound = labels.le === "+Inf" ? Infinity : Number(labels.le);
    const change = difference(name, labels, value);
    if (name.startsWith("millrace_export")) {
      const below = entry(calls, call, () => new Map());
      below.set(bound, (below.get(bound) ?? 0) + change);
      continue;
    }
    if (name.startsWith("millrace_reactor")) {
      const reactor = entry(reactors, core, () => ({ busy: 0, idle: 0 }));
      reactor[name.includes("busy") ? "busy" : "idle"] += change;
      continue;
    }
    const one = entry(procedures, `${program} ${procedure}`, () => ({
      program, procedure, requests: 0, errors: 0, bytes: 0, buckets: [],
    }));
    if (name.endsWith("_bucket")) one.buckets.push([bound, change]);
    else if (name.includes("requests")) one.requests += change / elapsed;
    else if (name.includes("errors")) one.errors += change / elapsed;
    else one.bytes += change / elapsed;
  }
  for (const one of procedures.values()) Object.assign(one, quantiles(one.buckets));
  const latency = Object.fromEntries([...calls].map(([call, below]) => [call, quantiles([...below])]));
  for (const one of reactors.values()) one.share = one.busy / Math.max(one.busy + one.idle, 1e-9);
  return { procedures, reactors, latency };
}

// Events of devices that are no failures.
const HARMLESS = new Set(["port_active", "addresses_changed"]);

// The RDMA devices: what they are, whether they work, and what has failed.
export function devices(samples) {
  const known = new Map();
  for (const [name, labels, value] of samples) {
    if (!name.startsWith("millrace_rdma")) continue;
    const one = known.get(labels.device) ?? { name: labels.device, ports: [], errors: [] };
    known.set(labels.device, one);
    if (name.endsWith("_in_use")) one.inUse = value > 0;
    else if (name.endsWith("_info")) one.transport = labels.transport;
    else if (name.endsWith("_registered_bytes")) one.registered = value;
    else if (name.endsWith("_unplugged_total")) one.unplugged = value;
    else if (name.endsWith("_port_active")) one.ports.push(`${labels.port} ${labels.state}`);
    else if (value > 0 && !HARMLESS.has(labels.event)) one.errors.push(`${value} ${labels.event.replaceAll("_", " ")}`);
  }
  return [...known.values()];
}
