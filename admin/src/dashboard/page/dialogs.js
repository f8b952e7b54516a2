// The page's dialogs: each asks, tries, and stays open with the reason where it fails.

import { parseBytes, wholeBytes } from "./format.js";
import * as service from "./service.js";
import { named } from "./states.js";

const byId = (id) => document.getElementById(id);

// Wires a dialog's form to `attempt`, and returns a function that opens it.
function dialog(id, attempt) {
  const box = byId(id);
  const error = box.querySelector(".error");
  const form = box.querySelector("form");
  let again = null;
  const run = async (action) => {
    const buttons = [...box.querySelectorAll("button")];
    buttons.forEach((button) => { button.disabled = true; });
    try {
      await action();
      box.close();
      again?.();
    } catch (reason) {
      error.textContent = reason.message;
      error.hidden = false;
    } finally {
      buttons.forEach((button) => { button.disabled = false; });
    }
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    run(attempt);
  });
  box.querySelector(".cancel").addEventListener("click", () => box.close());
  const open = (then) => {
    again = then ?? null;
    error.hidden = true;
    box.showModal();
  };
  return { open, run };
}

let needed = "read";
const unlocking = dialog("unlock-dialog", async () => {
  await service.unlock(byId("token").value.trim(), needed);
  byId("token").value = "";
  showLock();
});

// Shows who the server takes this page for.
export function showLock() {
  const { name, role } = service.who();
  byId("unlock").textContent = service.isUnlocked() ? "Lock" : "Unlock";
  byId("requester").textContent = name === null ? "" : `${name} (${role ?? "no role"})`;
}

function askToken(role, then) {
  needed = role;
  const { name, role: own } = service.who();
  byId("unlock-role").textContent = own === null || role === "read" ? "" : `${name} has the role ${own}, and this needs ${role}.`;
  unlocking.open(then);
}

// Runs `action`, which needs a role, asking for a token first if this page does not have the role.
function unlocked(role, action) {
  if (service.may(role)) action();
  else askToken(role, action);
}

let subject = null;
const limiting = dialog("limits-dialog", async () => {
  const iops = byId("limit-iops").value.trim();
  const bandwidth = parseBytes(byId("limit-bandwidth").value);
  if (Number.isNaN(bandwidth)) throw new Error("bytes per second: write a whole number with B, KiB, MiB or GiB");
  await subject.set({ iops: iops === "" ? null : Number(iops), bandwidth_bytes: bandwidth });
});

function askLimits(words, { iops, bandwidth_bytes: bandwidth }, set) {
  unlocked("admin", () => {
    subject = { set };
    byId("limits-of").textContent = words;
    byId("limit-iops").value = iops ?? "";
    byId("limit-bandwidth").value = bandwidth === null ? "" : wholeBytes(bandwidth);
    limiting.open();
  });
}

export const limitClient = ({ address, limits }) =>
  askLimits(`The most that the client ${address} gets, over all its connections.`, limits, (wanted) =>
    wanted.iops === null && wanted.bandwidth_bytes === null
      ? service.unlimitClient(address) : service.limitClient(address, wanted));

export const limitExport = ({ path, limits }) =>
  askLimits(`The most that all clients of ${path} get together.`, limits, (wanted) => service.limitExport(path, wanted));

const draining = dialog("drain-dialog", () => service.drain(Number(byId("drain-deadline").value)));

let confirmed = null;
const confirming = dialog("confirm-dialog", () => confirmed());

// Does `action`, called `title`, to `subject` once its effect was read and confirmed.
const confirm = (title, subject, effect, action) => unlocked("operate", () => {
  confirmed = action;
  byId("confirm-title").textContent = title;
  byId("confirm").textContent = title;
  byId("confirm-of").textContent = subject;
  byId("confirm-effect").textContent = effect;
  confirming.open();
});

export const revoke = (state) => {
  const together = state.kind === "delegation" ? "" : " An open and its locks are revoked together.";
  confirm("Revoke", `The ${named(state)}.`,
    `Others may have what it blocked. The client is told with its next request; its programs get errors where they use it.${together}`,
    () => service.revoke(state.stateid));
};

export const endClient = (client) =>
  confirm("End", `The client ${client.owner} of NFS version 4, at ${client.address ?? "no address"}.`,
    "Its sessions, opens, locks and delegations are gone at once, and others may have what they blocked. If it still lives, it begins anew without its locks; its programs get errors where they had some.",
    () => service.endClient(client.id));

const endGrace = () =>
  confirm("End", "The grace period of NFS version 4.",
    "New opens and locks are granted at once. Clients that have not reclaimed theirs lose them.",
    service.endGrace);

// Wires the buttons of the page; `fail` shows what goes wrong outside a dialog.
export function wire(fail) {
  byId("unlock").addEventListener("click", () => {
    if (!service.isUnlocked()) return askToken("read");
    return service.lock().then(showLock, fail);
  });
  byId("limits-remove").addEventListener("click", () =>
    limiting.run(() => subject.set({ iops: null, bandwidth_bytes: null })));
  byId("grace-end").addEventListener("click", endGrace);
  byId("drain").addEventListener("click", () => unlocked("operate", () => draining.open()));
  byId("drain-cancel").addEventListener("click", () =>
    unlocked("operate", () => service.serveAgain().catch(fail)));
}
