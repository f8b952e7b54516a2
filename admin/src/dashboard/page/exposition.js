// Figures of the moment out of two scrapes: counters become rates, histograms quantiles.

const LINE = /^(millrace_[a-z_]+)(?:\{(.*)\})? ([^ ]+)$/;
const LABEL = /([a-z_]+)="((?:[^"\\]|\\.)*)"/g;
const WANTED = new Set([
  "millrace_rpc_requests_total",
  "millrace_rpc_errors_total",
  "millrace_rpc_data_bytes_total",
  "millrace_rpc_duration_seconds_bucket",
  "millrace_reactor_busy_seconds_total",
  "millrace_reactor_idle_seconds_total",
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

const key = (name, labels) => `${name}|${labels.core ?? ""}|${labels.program ?? ""}|${labels.procedure ?? ""}|${labels.le ?? ""}`;

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

// Rates between two scrapes that lie `elapsed` seconds apart.
export function rates(before, after, elapsed) {
  const old = sums(before);
  const difference = (name, labels, value) =>
    // A server that has started anew counts from zero.
    value >= (old.get(key(name, labels)) ?? 0) ? value - (old.get(key(name, labels)) ?? 0) : value;
  const procedures = new Map();
  const reactors = new Map();
  const entry = (map, name, make) => map.get(name) ?? map.set(name, make()).get(name);
  for (const [at, value] of sums(after)) {
    const [name, core, program, procedure, bound] = at.split("|");
    const labels = { core, program, procedure, le: bound };
    const change = difference(name, labels, value);
    if (name.startsWith("millrace_reactor")) {
      const reactor = entry(reactors, core, () => ({ busy: 0, idle: 0 }));
      reactor[name.includes("busy") ? "busy" : "idle"] += change;
      continue;
    }
    const one = entry(procedures, `${program} ${procedure}`, () => ({
      program, procedure, requests: 0, errors: 0, bytes: 0, buckets: [],
    }));
    if (name.endsWith("_bucket")) one.buckets.push([bound === "+Inf" ? Infinity : Number(bound), change]);
    else if (name.includes("requests")) one.requests += change / elapsed;
    else if (name.includes("errors")) one.errors += change / elapsed;
    else one.bytes += change / elapsed;
  }
  for (const one of procedures.values()) {
    one.p50 = quantile(one.buckets, 0.5);
    one.p99 = quantile(one.buckets, 0.99);
  }
  for (const one of reactors.values()) one.share = one.busy / Math.max(one.busy + one.idle, 1e-9);
  return { procedures, reactors };
}
