//! What an end does with a frame that arrives.

use std::time::Instant;

use super::end::{End, Fault, Frame, Phase};
use super::network::{Request, State};
use super::scatter;
use crate::fabric::{Access, Ended, Event, Key, Operation, PrivateData, ReadDepths, WorkError};

impl State {
    /// Delivers all that is due to one provider. Returns the number of frames.
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
            while self.ends[index].provider == provider
                && let Some((_, frame)) = self.ends[index]
                    .arrivals
                    .pop_front_if(|(due, _)| *due <= now)
            {
                self.arrive(index, frame);
                count += 1;
            }
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
        let index = self.add(provider, Phase::Asked, limits);
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
            Frame::Work { sequence } => self.work(index, sequence),
            Frame::Done { sequence, result } => {
                let end = &mut self.ends[index];
                let Some(entry) = end.entry(sequence) else {
                    return;
                };
                entry.result = Some(result);
                if matches!(entry.request.operation, Operation::Read(_)) {
                    end.reads_open -= 1;
                }
                self.complete(index);
            }
            Frame::End(reason) => self.end(index, reason),
        }
    }

    fn accepted(&mut self, index: usize, private_data: PrivateData, ird: u16, ord: u16) {
        let queue_pair = self.id(index);
        let end = &mut self.ends[index];
        if end.phase == Phase::Closing {
            return; // Closed before it stood; the end is on its way.
        }
        end.phase = Phase::Established;
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

    /// Carries out a work request of the peer's.
    fn work(&mut self, index: usize, sequence: u64) {
        let queue_pair = self.id(index);
        let peer = self.ends[index].peer.and_then(|peer| self.locate(peer));
        let Some(peer) = peer else { return };
        let [end, peer] = self
            .ends
            .get_disjoint_mut([index, peer])
            .expect("two ends of one connection");
        let Some(entry) = peer.entry(sequence) else {
            return;
        };
        let local = &entry.request.local;
        let length = scatter::length(local);
        let outcome = match entry.request.operation {
            Operation::Send { invalidate, .. } => {
                receive(end, length, invalidate).map(|mut buffer| {
                    scatter::gather(local, &mut buffer);
                    let length = u32::try_from(length).expect("fits a buffer");
                    Some(Event::Received {
                        queue_pair,
                        buffer,
                        length,
                        invalidated: invalidate,
                    })
                })
            }
            // Without bytes there is nothing to reach, so the key is not looked at
            // (RFC 5040 section 5.2).
            Operation::Write(_) | Operation::Read(_) if length == 0 => Ok(None),
            Operation::Write(to) => end.reach(to, length, Access::RemoteWrite).map(|memory| {
                scatter::copy((local, 0), (memory.0, memory.1), length);
                None
            }),
            Operation::Read(from) => end.reach(from, length, Access::RemoteRead).map(|memory| {
                scatter::copy((memory.0, memory.1), (local, 0), length);
                None
            }),
        };
        match outcome {
            Ok(event) => {
                if let Some(event) = event {
                    self.report(index, event);
                }
                self.send(
                    index,
                    Frame::Done {
                        sequence,
                        result: Ok(()),
                    },
                );
            }
            Err(fault) => self.fail(index, sequence, fault),
        }
    }

    /// Ends the connection for a fault of the peer's.
    fn fail(&mut self, index: usize, sequence: u64, fault: Fault) {
        if fault.work_error() != WorkError::Flushed {
            self.send(
                index,
                Frame::Done {
                    sequence,
                    result: Err(fault.work_error()),
                },
            );
        }
        let terminate = fault.terminate();
        self.send(index, Frame::End(Ended::TerminateReceived(terminate)));
        self.end(index, Ended::TerminateSent(terminate));
    }
}

/// The receive for a message, if all is well with it.
fn receive(
    end: &mut End,
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
