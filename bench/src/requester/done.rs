//! RDMA_DONE: the server may take the memory of a reply back (RFC 5666 section 3.8).

use millrace_reactor::fabric::{Provider, chain};
use millrace_wire::rpcrdma::{FIRST_WORDS, version1};
use millrace_wire::xdr::Encoder;

use super::connection::Connection;

impl Connection {
    /// Queues an RDMA_DONE for a call's reply. It is encoded at the front of the buffer of the
    /// call's own message, which has been sent.
    pub(super) fn finish_fetch(&mut self, index: u32) {
        let slot = &self.slots[index as usize];
        let mut bytes = [0; FIRST_WORDS];
        let mut out = Encoder::new(&mut bytes);
        let encoded = version1::encode_done(&mut out, slot.xid, self.window.wish());
        if let (Some(message), Ok(())) = (&slot.message, encoded) {
            let memory = message.slice(0..FIRST_WORDS);
            memory.copy_from(0, &bytes);
            self.fetches.done.push_back(memory);
        }
    }

    /// Sends RDMA_DONEs as far as there are credits for them.
    pub(super) fn pump_dones(&mut self, provider: &mut dyn Provider) -> usize {
        let mut sent = 0;
        while self.window.has_room_for_done() && provider.send_room(self.queue_pair) > 0 {
            let Some(memory) = self.fetches.done.pop_front() else {
                break;
            };
            self.scratch
                .chain
                .push(chain::plain_send(std::iter::once(memory).collect()));
            if provider
                .post(self.queue_pair, &mut self.scratch.chain)
                .is_err()
            {
                let back = self.scratch.chain.pop();
                let memory = back.and_then(|request| request.local.into_iter().next());
                self.fetches.done.extend(memory);
                break;
            }
            self.window.sent_done();
            self.counters.dones += 1;
            sent += 1;
        }
        sent
    }
}
