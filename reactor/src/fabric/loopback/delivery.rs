//! Handling of frames that arrive at an end.

use std::ops::Range;
use std::time::Instant;

use super::end::{Exposed, Fault, Frame, LoopbackEnd, LoopbackPhase, RemoteSource, Transfer};
use super::log::Record;
use super::network::{NetworkState, Request};
use super::scatter;
use crate::fabric::{
    Access, Ended, Event, Key, Operation, PrivateData, ReadDepths, RemoteAddress, WorkError,
};

impl NetworkState {
    /// Delivers everything due to one provider. Returns the number of frames.
    pub fn deliver(&mut self, provider: usize, now: Instant) -> usize {
        let mut count = 0;
        while let Some(request) = self.providers[provider]
            .requests
            .pop_front_if(|r| r.due <= now)
        {
            self.ask(provider, request);
            count += 1;
        }
        for index in 0..self.ends.len() {
            if self.ends[index].provider != provider {
                continue;
            }
            while let Some(frame) = self.ends[index].next_arrival(now) {
                self.arrive(index, frame);
                count += 1;
            }
            count += self.expire(index, now);
        }
        count
    }

    /// Performs delayed releases. Returns the number of revocations that took effect.
    fn expire(&mut self, index: usize, now: Instant) -> usize {
        let end = &mut self.ends[index];
        end.late_sends.retain(|free| *free > now);
        end.late_keys.retain(|free| *free > now);
        let mut count = 0;
        let dying = |exposed: &Exposed| exposed.dies.is_some_and(|dies| dies <= now);
        while let Some(at) = self.ends[index].exposures.iter().position(dying) {
            let exposed = self.ends[index].exposures.swap_remove(at);
            self.revoked(index, exposed);
            count += 1;
        }
        count
    }

    fn ask(&mut self, provider: usize, request: Request) {
        let Request {
            from,
            peer,
            listener,
            private_data,
            ..
        } = request;
        let Some(asking) = self.locate(from) else {
            return;
        };
        let port = &self.providers[provider];
        let Some(Some(found)) = port.listeners.get(listener.0 as usize) else {
            let due = self.due();
            self.ends[asking].arrivals.push_back((due, Frame::Refused));
            return;
        };
        let limits = found.limits;
        let index = self.add(provider, LoopbackPhase::Asked, limits);
        let queue_pair = self.id(index);
        self.ends[asking].peer = Some(queue_pair);
        let stated = self.ends[asking].limits;
        let depths = ReadDepths {
            peer_ird: Some(stated.ird),
            peer_ord: Some(stated.ord),
            ird: limits.ird.min(stated.ord),
            ord: limits.ord.min(stated.ird),
        };
        let end = &mut self.ends[index];
        end.peer = Some(from);
        end.depths = depths;
        self.note(Record::Asked {
            client: from,
            server: queue_pair,
        });
        let event = Event::ConnectRequest {
            queue_pair,
            listener,
            peer,
            private_data,
            depths,
        };
        self.report(index, event);
    }

    fn arrive(&mut self, index: usize, frame: Frame) {
        match frame {
            Frame::Accepted {
                private_data,
                ird,
                ord,
            } => {
                self.accepted(index, *private_data, ird, ord);
            }
            Frame::Rejected {
                private_data,
                ird,
                ord,
            } => {
                let queue_pair = self.id(index);
                let limits = self.ends[index].limits;
                let depths = ReadDepths {
                    peer_ird: Some(ird),
                    peer_ord: Some(ord),
                    ird: limits.ird,
                    ord: limits.ord,
                };
                let private_data = *private_data;
                self.report(
                    index,
                    Event::Rejected {
                        queue_pair,
                        private_data,
                        depths,
                    },
                );
                self.release(index);
            }
            Frame::Refused => {
                self.end(index, Ended::Network(std::io::ErrorKind::ConnectionRefused));
            }
            Frame::Work(source) => self.work(index, source),
            Frame::Piece(transfer) => self.piece(index, transfer),
            Frame::Done { sequence, result } => {
                let end = &mut self.ends[index];
                let Some(entry) = end.entry(sequence) else {
                    return;
                };
                entry.result = Some(result);
                if matches!(entry.request.operation, Operation::Read(_)) {
                    end.reads_open -= 1;
                    // The continuations of a failed Read are flushed.
                    if result.is_ok() {
                        end.finish_read(sequence, result);
                    }
                }
                if self.happens(self.faults.withheld_completions) {
                    self.ends[index].withheld = true;
                    let queue_pair = self.id(index);
                    self.note(Record::Withheld { queue_pair });
                }
                self.complete(index);
            }
            Frame::End(reason) => self.end(index, reason),
        }
    }

    fn accepted(&mut self, index: usize, private_data: PrivateData, ird: u16, ord: u16) {
        let queue_pair = self.id(index);
        let end = &mut self.ends[index];
        if end.phase == LoopbackPhase::Closing {
            return; // Closed before it stood; the end is on its way.
        }
        end.phase = LoopbackPhase::Established;
        end.deadline = None;
        end.depths = ReadDepths {
            peer_ird: Some(ird),
            peer_ord: Some(ord),
            ird: end.limits.ird,
            ord: end.limits.ord.min(ird),
        };
        let depths = end.depths;
        self.report(
            index,
            Event::Established {
                queue_pair,
                private_data,
                depths,
            },
        );
    }

    /// Executes a work request of the peer, or starts to.
    fn work(&mut self, index: usize, source: RemoteSource) {
        let Some((operation, length)) = self.look_at(index, &source) else {
            // The stream has a gap, and nothing after it is valid.
            self.ends[index].gap = true;
            return;
        };
        if self.ends[index].gap {
            return;
        }
        match operation {
            Operation::Send { invalidate, .. } => {
                if self.place_all(index) {
                    self.message(index, &source, length, invalidate);
                }
            }
            // Without bytes nothing is accessed, so the key is not checked (RFC 5040 section 5.2).
            _ if length == 0 => self.done(index, &source),
            Operation::Read(_) if self.happens(self.faults.refused_reads) => {
                self.fail(index, &source, Fault::ReadKey, true);
            }
            _ if self.faults.reorder => {
                let pieces = self.pieces(length);
                self.ends[index].transfers.push(Transfer {
                    source,
                    operation,
                    pieces,
                });
            }
            _ => match self.transfer(index, &source, operation, 0..length) {
                Ok(true) => self.done(index, &source),
                Ok(false) => {}
                Err(fault) => self.fail(index, &source, fault, false),
            },
        }
    }

    /// The operation of a peer's work request, and its length; `None` if the peer has flushed it.
    fn look_at(&mut self, index: usize, source: &RemoteSource) -> Option<(Operation, usize)> {
        match source {
            RemoteSource::Carried(operation, bytes) => Some((*operation, bytes.len())),
            RemoteSource::Queued(sequence) => {
                let peer = self.ends[index].peer.and_then(|peer| self.locate(peer))?;
                let operation = self.ends[peer].entry(*sequence)?.request.operation;
                let memory = self.ends[peer].memory(*sequence);
                Some((operation, scatter::length(memory)))
            }
        }
    }

    /// Moves a piece of a Write or Read.
    fn piece(&mut self, index: usize, mut transfer: Transfer) {
        let Some((_, range)) = transfer.pieces.pop() else {
            return;
        };
        match self.transfer(index, &transfer.source, transfer.operation, range) {
            Ok(true) if transfer.pieces.is_empty() => self.done(index, &transfer.source),
            Ok(true) => self.ends[index].transfers.push(transfer),
            Ok(false) => self.ends[index].gap = true,
            Err(fault) => self.fail(index, &transfer.source, fault, false),
        }
    }

    /// Places the rest of all Writes that have arrived. False if that ended the connection, or some
    /// are lost.
    fn place_all(&mut self, index: usize) -> bool {
        let id = self.id(index);
        let is_write = |transfer: &Transfer| matches!(transfer.operation, Operation::Write(_));
        while let Some(at) = self.ends[index].transfers.iter().position(is_write) {
            let transfer = self.ends[index].transfers.remove(at);
            self.piece(index, transfer);
            if self.locate(id).is_none() || self.ends[index].gap {
                return false;
            }
        }
        true
    }

    /// Moves these bytes of a Write or Read. False if the peer has flushed it in the meantime.
    fn transfer(
        &mut self,
        index: usize,
        source: &RemoteSource,
        operation: Operation,
        range: Range<usize>,
    ) -> Result<bool, Fault> {
        let (Operation::Write(remote) | Operation::Read(remote)) = operation else {
            return Ok(true);
        };
        let to = RemoteAddress {
            offset: remote.offset.wrapping_add(range.start as u64),
            ..remote
        };
        let (start, length) = (range.start, range.len());
        let place = match source {
            RemoteSource::Carried(_, bytes) => {
                let end = &mut self.ends[index];
                let (memory, place) = end.reach(to, length, Access::RemoteWrite)?;
                scatter::fill(memory, place, &bytes[range]);
                place
            }
            RemoteSource::Queued(sequence) => {
                let peer = self.ends[index].peer.and_then(|peer| self.locate(peer));
                let Some(peer) = peer else { return Ok(false) };
                let [end, peer] = self
                    .ends
                    .get_disjoint_mut([index, peer])
                    .expect("two ends of one connection");
                let Some(entry) = peer.entry(*sequence) else {
                    return Ok(false);
                };
                if matches!(operation, Operation::Write(_)) {
                    let local = &entry.request.local;
                    let (memory, place) = end.reach(to, length, Access::RemoteWrite)?;
                    scatter::copy((local, start), (memory, place), length);
                    place
                } else {
                    let (memory, place) = end.reach(to, length, Access::RemoteRead)?;
                    scatter::copy((memory, place), (peer.memory(*sequence), start), length);
                    place
                }
            }
        };
        let (id, key, place) = (self.id(index), remote.key, place as u64);
        self.note(if matches!(operation, Operation::Write(_)) {
            Record::Placed {
                to: id,
                key,
                place,
                length,
            }
        } else {
            Record::Fetched {
                from: id,
                key,
                place,
                length,
            }
        });
        Ok(true)
    }

    /// Receives a message.
    fn message(
        &mut self,
        index: usize,
        source: &RemoteSource,
        length: usize,
        invalidate: Option<Key>,
    ) {
        let queue_pair = self.id(index);
        if self.happens(self.faults.missing_receives) {
            return self.fail(index, source, Fault::NoReceive, true);
        }
        let mut buffer = match receive(&mut self.ends[index], length, invalidate) {
            Ok(buffer) => buffer,
            Err(fault) => return self.fail(index, source, fault, false),
        };
        match source {
            RemoteSource::Carried(_, bytes) => buffer[..length].copy_from_slice(bytes),
            RemoteSource::Queued(sequence) => {
                let peer = self.ends[index].peer.and_then(|peer| self.locate(peer));
                let entry = peer.and_then(|peer| self.ends[peer].entry(*sequence));
                let entry = entry.expect("looked at before");
                scatter::gather(&entry.request.local, &mut buffer);
            }
        }
        self.note(Record::Sent {
            to: queue_pair,
            length,
        });
        self.report(
            index,
            Event::Received {
                queue_pair,
                buffer,
                length: u32::try_from(length).expect("fits a buffer"),
                invalidated: invalidate,
            },
        );
        self.done(index, source);
    }

    /// Reports the success of a work request to the peer, unless it has already completed it.
    fn done(&mut self, index: usize, source: &RemoteSource) {
        if let RemoteSource::Queued(sequence) = *source {
            self.send(
                index,
                Frame::Done {
                    sequence,
                    result: Ok(()),
                },
            );
        }
    }

    /// Ends the connection for a fault of the peer, or an `injected` one.
    fn fail(&mut self, index: usize, source: &RemoteSource, fault: Fault, injected: bool) {
        if let RemoteSource::Queued(sequence) = *source
            && fault.work_error() != WorkError::Flushed
        {
            self.send(
                index,
                Frame::Done {
                    sequence,
                    result: Err(fault.work_error()),
                },
            );
        }
        let terminate = fault.terminate();
        self.note(Record::Fault {
            queue_pair: self.id(index),
            terminate,
            injected,
        });
        self.send(index, Frame::End(Ended::TerminateReceived(terminate)));
        self.end(index, Ended::TerminateSent(terminate));
    }
}

/// The receive for a message, if there is no error.
fn receive(
    end: &mut LoopbackEnd,
    length: usize,
    invalidate: Option<Key>,
) -> Result<millrace_mempool::Buffer, Fault> {
    let buffer = end.receives.front().ok_or(Fault::NoReceive)?;
    if length > buffer.capacity() || length > end.limits.receive_size as usize {
        return Err(Fault::TooLong);
    }
    if let Some(key) = invalidate {
        let exposed = end.exposed(key).filter(|exposed| !exposed.dead);
        exposed.ok_or(Fault::Invalidate)?.dead = true;
    }
    end.receives.pop_front().ok_or(Fault::NoReceive)
}
