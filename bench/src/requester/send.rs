//! From the queue to the wire.

use millrace_mempool::{Class, Pool, Slice};
use millrace_reactor::fabric::{Access, Provider, Slices, chain};
use millrace_wire::rpc::MessageType;
use millrace_wire::rpcrdma::{CallChunks, Outgoing, ReadSegment, Segment, encode_header, version1};
use millrace_wire::xdr::{Encoder, Padding, pad};

use arrayvec::ArrayVec;

use super::call::{CallError, Sink};
use super::connection::{Connection, RequesterState, Scratch};
use super::gss::PlainCall;
use super::memory::{buffers, collect};
use super::plan::{CallPlan, Form, HEADER_MAX, ITEMS_MAX, Merge, plan};
use super::slot::{CallSlot, Ending, Offered, Purpose, START, Stage};

/// Why a call stays in the queue for now.
struct Stalled;

impl Connection {
    /// Sends answers to the server's calls that wait, fetches replies that came as read chunks,
    /// answers them by RDMA_DONE, and sends queued calls, in order, as far as credits, keys, memory
    /// and the send queue allow. Returns how much was posted. Calls that fit in no form end here.
    pub fn pump(&mut self, provider: &mut dyn Provider, sink: Sink<'_>) -> usize {
        let mut sent = self.pump_answers(provider);
        if self.state == RequesterState::Negotiating {
            return sent + self.negotiate(provider);
        }
        sent += self.pump_fetches(provider, sink);
        if self.configuration.is_underway() {
            sent += self.configure(provider);
            if self.configuration.is_underway() {
                return sent;
            }
        }
        while self.state == RequesterState::Ready && self.window.has_room() {
            let Some(&index) = self.queue.front() else {
                break;
            };
            // A reply must find a receive, whatever else is on its way.
            let needed = self.window.in_flight() + self.settings.reverse_credits;
            if self.receives <= needed || provider.send_room(self.queue_pair) == 0 {
                break;
            }
            let slot = &self.slots[index as usize];
            let protection = slot.protection.as_ref();
            let protected = protection.and_then(|one| one.shape(&slot.shape, slot.plain_length()));
            let limits = self.limits();
            let Some(plan) = plan(protected.as_ref().unwrap_or(&slot.shape), &limits) else {
                self.queue.pop_front();
                self.slots[index as usize].stage =
                    Stage::Ending(Ending::Failed(CallError::TooLong));
                self.deliver(provider, index, sink);
                continue;
            };
            if self.send(provider, index, &plan).is_err() {
                break;
            }
            self.queue.pop_front();
            self.slots[index as usize].stage = Stage::Sent;
            self.window.sent();
            self.counters.sent += 1;
            self.counters.forms[plan.form as usize] += 1;
            sent += 1;
        }
        sent
    }

    fn send(
        &mut self,
        provider: &mut dyn Provider,
        index: u32,
        plan: &CallPlan,
    ) -> Result<(), Stalled> {
        let protected = self.slots[index as usize].protect(&self.pool);
        let prepared = protected.ok_or(Stalled).and_then(|()| {
            self.offer(provider, index, plan)?;
            if self.clashes(index) {
                return Err(Stalled);
            }
            let invalidate = self.nominate(&*provider, index);
            let padding = self.padding(index, plan);
            self.counters.padded += u64::from(padding.is_some());
            let length = self.header(index, plan, invalidate, padding)?;
            self.gather(index, plan, length, padding)
        });
        let posted = prepared.and_then(|local| {
            self.scratch.chain.push(chain::plain_send(local));
            let posted = provider.post(self.queue_pair, &mut self.scratch.chain);
            self.scratch.chain.clear();
            posted.map_err(|_| Stalled)
        });
        if posted.is_err() {
            self.withdraw(provider, index);
        }
        posted
    }

    /// Withdraws the memory that a call offered but that was not sent.
    fn withdraw(&mut self, provider: &mut dyn Provider, index: u32) {
        let slot = &mut self.slots[index as usize];
        for offer in &slot.offers {
            // Memory of keys that die later is dropped when they do.
            drop(provider.revoke(self.queue_pair, offer.key));
        }
        self.exposed -= slot.offers.len() as u32;
        slot.requeue();
    }

    /// Exposes the memory of a call and notes its segments.
    fn offer(
        &mut self,
        provider: &mut dyn Provider,
        index: u32,
        plan: &CallPlan,
    ) -> Result<(), Stalled> {
        self.scratch.reads.clear();
        self.scratch.reply.clear();
        for chunk in &mut self.scratch.writes {
            chunk.clear();
        }
        if plan.form != Form::Inline {
            self.offer_reads(provider, index, plan)?;
        }
        if plan.offer_writes {
            self.offer_writes(provider, index, plan)?;
        }
        if plan.reply_chunk > 0 {
            self.offer_reply(provider, index, plan.reply_chunk)?;
        }
        Ok(())
    }

    fn offer_reads(
        &mut self,
        provider: &mut dyn Provider,
        index: u32,
        plan: &CallPlan,
    ) -> Result<(), Stalled> {
        let slot = &self.slots[index as usize];
        let chunks = if plan.form == Form::Long {
            1
        } else {
            slot.items.len()
        };
        for chunk in 0..chunks {
            let slot = &self.slots[index as usize];
            let whole;
            let (position, pieces) = if plan.form == Form::Long {
                whole = whole_message(slot, None).ok_or(Stalled)?;
                (0, whole.as_slice())
            } else {
                (slot.items[chunk].position, slot.item(chunk))
            };
            let copied;
            let (pieces, group) = match plan.merge {
                Merge::Pieces(group) => (pieces, group),
                Merge::Copy => {
                    copied = collect(&self.pool, pieces).ok_or(Stalled)?;
                    (copied.as_slice(), 1)
                }
            };
            let mut groups = Groups { pieces, group };
            let mut keys = std::mem::take(&mut self.scratch.reads);
            let exposed = loop {
                let Some(local) = groups.next() else {
                    break Ok(());
                };
                match expose(provider, self.queue_pair, local, Access::RemoteRead) {
                    Some(segment) => keys.push(ReadSegment { position, segment }),
                    None => break Err(Stalled),
                }
            };
            self.scratch.reads = keys;
            let made = self
                .scratch
                .reads
                .iter()
                .filter(|entry| entry.position == position);
            let offers = made.map(|entry| offered(&entry.segment, Purpose::Read));
            let slot = &mut self.slots[index as usize];
            let before = slot.offers.len();
            slot.offers.extend(offers);
            self.count(slot_offers(&self.slots, index) - before);
            exposed?;
        }
        Ok(())
    }

    fn offer_writes(
        &mut self,
        provider: &mut dyn Provider,
        index: u32,
        plan: &CallPlan,
    ) -> Result<(), Stalled> {
        for chunk in 0..self.slots[index as usize].shape.sinks.len() {
            let slot = &mut self.slots[index as usize];
            let group = match plan.merge {
                Merge::Pieces(group) => group,
                Merge::Copy => {
                    let length = slot.shape.sinks[chunk].length;
                    let buffers = buffers(&self.pool, length).ok_or(Stalled)?;
                    slot.bounce
                        .extend(buffers.into_iter().map(|slice| (chunk, slice)));
                    1
                }
            };
            let slot = &self.slots[index as usize];
            let bounce: Vec<Slice>;
            let pieces = if plan.merge == Merge::Copy {
                let mine = slot.bounce.iter().filter(|(sink, _)| *sink == chunk);
                bounce = mine.map(|(_, slice)| slice.clone()).collect();
                bounce.as_slice()
            } else {
                slot.sink(chunk)
            };
            let segments = &mut self.scratch.writes[chunk];
            let mut exposed = Ok(());
            for local in (Groups { pieces, group }) {
                match expose(provider, self.queue_pair, local, Access::RemoteWrite) {
                    Some(segment) => segments.push(segment),
                    None => {
                        exposed = Err(Stalled);
                        break;
                    }
                }
            }
            let offers = segments
                .iter()
                .map(|segment| offered(segment, Purpose::Write(chunk)));
            self.slots[index as usize].offers.extend(offers);
            self.count(self.scratch.writes[chunk].len());
            exposed?;
        }
        Ok(())
    }

    fn offer_reply(
        &mut self,
        provider: &mut dyn Provider,
        index: u32,
        length: usize,
    ) -> Result<(), Stalled> {
        let class = Class::for_size(length).ok_or(Stalled)?;
        let whole = self
            .pool
            .try_acquire(class)
            .ok_or(Stalled)?
            .into_slice(0..length);
        let count = self
            .settings
            .reply_segments
            .clamp(1, self.settings.segments);
        let each = length.div_ceil(count).next_multiple_of(4);
        let mut from = 0;
        while from < length {
            let asked = &self.slots[index as usize].reply_room;
            let next = asked.get(self.scratch.reply.len());
            let to = (from + next.map_or(each, |&bytes| bytes as usize)).min(length);
            let local = std::iter::once(whole.slice(from..to)).collect();
            let segment =
                expose(provider, self.queue_pair, local, Access::RemoteWrite).ok_or(Stalled)?;
            self.scratch.reply.push(segment);
            self.slots[index as usize]
                .offers
                .push(offered(&segment, Purpose::Reply));
            self.count(1);
            from = to;
        }
        Ok(())
    }

    fn count(&mut self, keys: usize) {
        self.exposed += keys as u32;
        self.counters.exposed += keys as u64;
    }

    /// Encodes the transport header and copies it to where it ends at the message.
    fn header(
        &mut self,
        index: u32,
        plan: &CallPlan,
        invalidate: u32,
        padding: Option<Padding>,
    ) -> Result<usize, Stalled> {
        let Scratch {
            reads,
            writes,
            reply,
            header,
            ..
        } = &mut self.scratch;
        let slot = &self.slots[index as usize];
        let sinks = if plan.offer_writes {
            slot.shape.sinks.len()
        } else {
            0
        };
        let writes: ArrayVec<&[Segment], ITEMS_MAX> =
            writes[..sinks].iter().map(Vec::as_slice).collect();
        let chunks = CallChunks {
            reads,
            writes: &writes,
            reply: (plan.reply_chunk > 0).then_some(reply.as_slice()),
        };
        let mut out = Encoder::new(header);
        let outgoing = Outgoing {
            version: self.version,
            xid: slot.xid,
            credits: self.window.wish(),
            inline: plan.form != Form::Long,
            direction: MessageType::Call,
            invalidate,
        };
        let Outgoing { xid, credits, .. } = outgoing;
        match padding {
            None => encode_header(&mut out, &outgoing, &chunks),
            Some(padding) => {
                version1::encode_padded_header(&mut out, xid, credits, padding, &chunks)
            }
        }
        .map_err(|_| Stalled)?;
        let length = out.position();
        debug_assert!(
            length <= plan.header + version1::PADDING_LENGTH,
            "{length} bytes, planned {plan:?}"
        );
        if let Some((message, _)) = slot.outgoing() {
            message.copy_from(HEADER_MAX - length, out.written());
        }
        Ok(length)
    }

    /// The local memory of the Send, header first.
    fn gather(
        &self,
        index: u32,
        plan: &CallPlan,
        header: usize,
        padding: Option<Padding>,
    ) -> Result<Slices, Stalled> {
        let slot = &self.slots[index as usize];
        let (message, length) = slot.outgoing().ok_or(Stalled)?;
        let mut local = Slices::new();
        match plan.form {
            Form::Long => local.push(message.slice(START - header..START)),
            Form::Chunked => local.push(message.slice(START - header..START + length)),
            Form::Inline if !slot.has_items_apart() => {
                local.push(message.slice(START - header..START + length));
            }
            Form::Inline => {
                let mut fits = true;
                let aligned = padding.zip(self.zeros.as_ref());
                let mut push = |piece| fits &= local.try_push(piece).is_ok();
                pieces(slot, aligned, &mut push).ok_or(Stalled)?;
                if !fits {
                    let whole = whole_message(slot, aligned).ok_or(Stalled)?;
                    local = collect(&self.pool, &whole)
                        .and_then(|copy| copy.into_iter().next())
                        .into_iter()
                        .collect();
                    local
                        .try_insert(0, message.slice(START - header..START))
                        .map_err(|_| Stalled)?;
                } else if let Some(first) = local.first_mut() {
                    // It begins at the XID, where the header ends.
                    *first = message.slice(START - header..START + first.len());
                }
            }
        }
        Ok(local)
    }
}

impl CallSlot {
    /// Signs the call and protects its body, if it has a security context and that is not done yet.
    /// `None` if there is no memory now.
    fn protect(&mut self, pool: &Pool) -> Option<()> {
        let Some(mut protection) = self.protection.take() else {
            return Some(());
        };
        let done = self.message.as_ref().and_then(|buffer| {
            let call = PlainCall {
                buffer,
                length: self.plain_length(),
                pieces: &|each| pieces(self, None, each),
            };
            protection.protect(&call, pool)
        });
        self.protection = Some(protection);
        done
    }
}

fn slot_offers(slots: &[CallSlot], index: u32) -> usize {
    slots[index as usize].offers.len()
}

fn offered(segment: &Segment, purpose: Purpose) -> Offered {
    Offered {
        key: millrace_reactor::fabric::Key(segment.handle),
        length: segment.length,
        purpose,
        asked: false,
        revoked: false,
    }
}

fn expose(
    provider: &mut dyn Provider,
    queue_pair: millrace_reactor::fabric::QueuePairId,
    local: Slices,
    access: Access,
) -> Option<Segment> {
    let exposure = provider.expose(queue_pair, local, access).ok()?;
    Some(Segment {
        handle: exposure.key.0,
        length: exposure.length,
        offset: exposure.offset,
    })
}

/// Pieces in groups of equal number.
struct Groups<'a> {
    pieces: &'a [Slice],
    group: usize,
}

impl Iterator for Groups<'_> {
    type Item = Slices;

    fn next(&mut self) -> Option<Slices> {
        if self.pieces.is_empty() {
            return None;
        }
        let (group, rest) = self.pieces.split_at(self.group.min(self.pieces.len()));
        self.pieces = rest;
        Some(group.iter().cloned().collect())
    }
}

/// Goes through the RPC message with its items and their pads in place; the first piece begins at
/// the XID. Zeros align the items if that is wanted. `None` for items that cannot be where they
/// are said to be.
fn pieces(
    slot: &CallSlot,
    aligned: Option<(Padding, &Slice)>,
    each: &mut dyn FnMut(Slice),
) -> Option<()> {
    let (message, length) = slot.outgoing()?;
    if !slot.has_items_apart() {
        each(message.slice(START..START + length));
        return Some(());
    }
    let mut shift = 0;
    // Bytes of items and pads before the next part of the message.
    let mut apart = 0;
    let mut at = 0;
    for (index, item) in slot.items.iter().enumerate() {
        let to = (item.position as usize).checked_sub(apart)?;
        if to > slot.length || to < at {
            return None;
        }
        each(message.slice(START + at..START + to));
        if let Some((padding, zeros)) = aligned {
            let align = padding.before(item.length as usize, item.position as usize + shift);
            if align > 0 {
                each(zeros.slice(0..align));
                shift += align;
            }
        }
        slot.item(index).iter().cloned().for_each(&mut *each);
        let pad = pad(item.length as usize);
        if pad > 0 {
            each(message.slice(START + slot.length..START + slot.length + pad));
        }
        apart += item.length as usize + pad;
        at = to;
    }
    if at < slot.length {
        each(message.slice(START + at..START + slot.length));
    }
    Some(())
}

/// The same in a vector.
fn whole_message(slot: &CallSlot, aligned: Option<(Padding, &Slice)>) -> Option<Vec<Slice>> {
    let mut whole = Vec::with_capacity(slot.data.len() + 4 * slot.items.len() + 1);
    pieces(slot, aligned, &mut |piece| whole.push(piece))?;
    Some(whole)
}
