// The opens, locks and delegations of one client of NFS version 4, in pages.

import { count, seconds } from "./format.js";
import * as service from "./service.js";
import { Table, button, text } from "./table.js";

const byId = (id) => document.getElementById(id);
const PAGE = 50;
// Ranges of a lock that are written out.
const RANGES = 3;

const ALLOWED = { none: "nothing", read: "read", write: "write", both: "read and write" };
const REVOKED = {
  lease_expired: "revoked: its lease had run out",
  administrative: "revoked by an operator",
  not_returned: "revoked: not returned in time",
};

const range = ({ offset, length, exclusive }) =>
  `${offset}–${length === null ? "end" : offset + length - 1} ${exclusive ? "exclusive" : "shared"}`;

// What a piece of state allows, or what is locked.
function words(one) {
  if (one.kind === "open") return `${ALLOWED[one.access]}, denies ${ALLOWED[one.deny]}`;
  if (one.kind === "delegation") {
    const recalled = one.recalled_seconds === null ? "" : `, recalled ${seconds(one.recalled_seconds)} ago`;
    return ALLOWED[one.access] + recalled;
  }
  if (one.kind === "revoked") return REVOKED[one.revocation] ?? "revoked";
  const first = one.ranges.slice(0, RANGES).map(range);
  if (one.range_count > first.length) first.push(`and ${count(one.range_count - first.length)} more`);
  const waiting = one.waiting > 0 ? ` (${count(one.waiting)} waiting)` : "";
  return (first.join(", ") || "none") + waiting;
}

const file = (one) => `${one.export ?? "no longer exported"}, ${one.file}`;

export const named = (one) => `${one.kind} of ${one.owner ?? "the client"} on ${file(one)}`;

export class ClientStates {
  // `revoke` is called with the state to be revoked, `turned` when another page is wanted.
  constructor(revoke, turned) {
    this.table = new Table(byId("detail-states"), [
      text("Kind", (one) => one.kind),
      text("File", file),
      text("Allows, or has locked", words),
      text("Owner", (one) => one.owner ?? "–"),
      text("Age", (one) => seconds(one.age_seconds), true),
      button("Revoke", (one) => one.kind === "revoked" ? null
        : { words: "Revoke…", name: `Revoke ${named(one)}` }, revoke),
    ], (one) => one.stateid, "no opens, locks or delegations");
    this.of(null);
    byId("states-next").addEventListener("click", () => {
      if (this.next !== null) this.turn([...this.pages, this.next], turned);
    });
    byId("states-previous").addEventListener("click", () => {
      if (this.pages.length > 1) this.turn(this.pages.slice(0, -1), turned);
    });
  }

  // Begins with the first page of a client.
  of(address) {
    // Where each page up to the one that is shown begins.
    Object.assign(this, { address, pages: [0], next: null });
  }

  turn(pages, turned) {
    Object.assign(this, { pages, next: null });
    turned();
  }

  // Asks for the page. Its answer is for `show`; null if another one is wanted by now.
  async ask(address) {
    if (this.address !== address) this.of(address);
    const { pages } = this;
    const at = pages.at(-1);
    let states = [];
    let next = at;
    // A page may be empty before the end.
    do {
      const path = `api/v1/nfs4/states?address=${encodeURIComponent(address)}&limit=${PAGE - states.length}&after=${next}`;
      const answer = await service.json(path);
      states = [...states, ...answer.states];
      ({ next } = answer);
    } while (next !== null && states.length < PAGE);
    // What the last page had is gone.
    if (states.length === 0 && pages.length > 1 && this.pages === pages) {
      this.pages = pages.slice(0, -1);
      return this.ask(address);
    }
    return this.pages === pages ? { states, next } : null;
  }

  show({ states, next }) {
    this.next = next;
    this.table.show(states);
    byId("states-page").textContent = `page ${this.pages.length}`;
    for (const [id, more] of [["states-previous", this.pages.length > 1], ["states-next", next !== null]]) {
      // A button that cannot be pressed stays, so that it keeps the focus.
      byId(id).setAttribute("aria-disabled", String(!more));
    }
    byId("states-pages").hidden = this.pages.length === 1 && next === null;
  }
}
