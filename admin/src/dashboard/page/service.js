// The server's API. The token lives in this module's memory only.

const RANKS = { read: 1, operate: 2, admin: 3 };
const NONE = { name: null, role: null, by: null };

let token = null;
let requester = NONE;

export const isUnlocked = () => token !== null;
// Who the server takes this page for, and whether it may do what needs a role.
export const who = () => requester;
export const may = (role) => (RANKS[requester.role] ?? 0) >= RANKS[role];

// What the server says against a request, in words.
export class Refusal extends Error {
  constructor(status, problem) {
    const fields = (problem.errors ?? []).map(({ path, message }) => `${path}: ${message}`);
    super([problem.detail ?? `the server answers ${status}`, ...fields].join("\n"));
    this.status = status;
  }
}

async function ask(path, options = {}) {
  const headers = new Headers(options.headers);
  if (token !== null) headers.set("Authorization", `Bearer ${token}`);
  const answer = await fetch(path, { ...options, headers, cache: "no-store", redirect: "error" });
  if (!answer.ok) throw new Refusal(answer.status, await answer.json().catch(() => ({})));
  return answer;
}

export const text = async (path) => (await ask(path)).text();
export const json = async (path) => (await ask(path)).json();

// The reactors that do not turn.
export async function stalled() {
  const answer = await fetch("healthz", { cache: "no-store" });
  return (await answer.json()).stalled;
}

async function change(method, path, body, headers = {}) {
  const type = body === undefined ? {} : { "Content-Type": "application/json" };
  const sent = body === undefined ? undefined : JSON.stringify(body);
  const answer = await ask(path, { method, body: sent, headers: { ...type, ...headers } });
  return answer.status === 204 ? null : answer.json();
}

// Asks who the server takes this page for: by the browser's certificate, or by what stands before the
// server. A token is asked for once only, as a wrong one counts.
export async function identify() {
  if (token !== null) return;
  const answer = await json("api/v1/whoami");
  // A token may have been taken meanwhile.
  if (token === null) requester = answer;
}

// Takes a token, if the server knows it and its role is enough.
export async function unlock(candidate, role) {
  const before = token;
  token = candidate;
  try {
    const answer = await json("api/v1/whoami");
    if (RANKS[answer.role] < RANKS[role]) {
      throw new Error(`${answer.name} has the role ${answer.role}, and this needs ${role}`);
    }
    requester = answer;
  } catch (error) {
    token = before;
    throw error;
  }
}

export async function lock() {
  token = null;
  requester = NONE;
  await identify();
}

export const limitClient = (address, limits) =>
  change("PUT", `api/v1/clients/${encodeURIComponent(address)}/limits`, limits);

export const unlimitClient = (address) =>
  change("DELETE", `api/v1/clients/${encodeURIComponent(address)}/limits`);

// Sets an export's limits: the whole configuration with that one change, unless it has changed in
// the meantime.
export async function limitExport(path, { iops, bandwidth_bytes: bandwidth }) {
  const answer = await ask("api/v1/config");
  const config = await answer.json();
  const found = config.exports.find((one) => one.path === path);
  if (!found) throw new Error(`${path} is exported no more`);
  const limits = {};
  if (iops !== null) limits.iops = iops;
  if (bandwidth !== null) limits.bandwidth = `${bandwidth}/s`;
  if (Object.keys(limits).length > 0) found.limits = limits;
  else delete found.limits;
  await change("PUT", "api/v1/config", config, { "If-Match": answer.headers.get("ETag") });
}

export const endClient = (id) => change("DELETE", `api/v1/nfs4/clients/${id}?force=true`);
export const endGrace = () => change("DELETE", "api/v1/nfs4/grace");
export const revoke = (stateid) => change("DELETE", `api/v1/nfs4/states/${stateid}`);

export const drain = (deadline) => change("POST", "api/v1/drain", { deadline_seconds: deadline });
export const serveAgain = () => change("DELETE", "api/v1/drain");
