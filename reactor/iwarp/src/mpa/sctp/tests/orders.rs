//! Every order of messages that a session can meet, against the legal sequences as RFC 5043
//! section 6 and RFC 6581 section 7 list them.

use super::*;

/// One thing that happens to the session under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// A control message comes.
    Comes(Function),
    /// A segment comes.
    SegmentComes,
    /// The application accepts, rejects, ends, sends.
    Accept,
    Reject(RejectCause),
    Terminate,
    Send,
}

/// A message on the wire, with whether the active side sent it. `None` is a segment.
type Wire = (bool, Option<Function>);

/// Whether this is the beginning of a legal sequence.
fn legal(history: &[Wire]) -> bool {
    use Function::*;
    match history {
        [] | [(true, Some(Initiate | EnhancedInitiate))] => true,
        [(true, Some(Initiate)), (false, Some(answer))] if *answer != Accept => {
            matches!(answer, Reject | Terminate)
        }
        [(true, Some(EnhancedInitiate)), (false, Some(answer))] if *answer != EnhancedAccept => {
            matches!(answer, Reject | EnhancedReject | Terminate)
        }
        [(true, Some(Initiate)), (false, Some(Accept)), data @ ..]
        | [
            (true, Some(EnhancedInitiate)),
            (false, Some(EnhancedAccept)),
            data @ ..,
        ] => data.iter().enumerate().all(|(place, (_, function))| {
            function.is_none() || (*function == Some(Terminate) && place + 1 == data.len())
        }),
        _ => false,
    }
}

/// Whether a legal sequence ends here for the side that looks at it.
fn over(history: &[Wire]) -> bool {
    use Function::*;
    matches!(
        history.last(),
        Some((_, Some(Terminate | Reject | EnhancedReject)))
    )
}

struct Stand {
    session: Session,
    active: bool,
    history: Vec<Wire>,
    incoming: u16,
    ended: bool,
}

impl Stand {
    fn passive() -> Self {
        let session = Session::listen(responding(4, 4), Instant::now()).unwrap();
        Self::new(session, false, Vec::new())
    }

    fn active(enhanced: bool) -> Self {
        let (config, initiate) = if enhanced {
            (exchanging(4, 4), Function::EnhancedInitiate)
        } else {
            (InitiatorConfig::default(), Function::Initiate)
        };
        Self::new(active(config), true, vec![(true, Some(initiate))])
    }

    fn new(session: Session, active: bool, history: Vec<Wire>) -> Self {
        Self {
            session,
            active,
            history,
            incoming: 0,
            ended: false,
        }
    }

    fn take(&mut self, step: Step) {
        let now = Instant::now();
        match step {
            Step::Comes(function) => {
                let data = function.has_connection_data().then(|| client_server(4, 4));
                let bytes = control(&message(self.incoming, function, data));
                self.session.receive(CONTROL_IDENTIFIER, &bytes, now);
                self.came(Some(function));
            }
            Step::SegmentComes => {
                let bytes = self.incoming.to_be_bytes();
                self.session.receive(SEGMENT_IDENTIFIER, &bytes, now);
                self.came(None);
            }
            Step::Accept => {
                let enhanced = self.history.first().and_then(|first| first.1)
                    == Some(Function::EnhancedInitiate);
                let function = if enhanced {
                    Function::EnhancedAccept
                } else {
                    Function::Accept
                };
                let done = self.session.accept(&accepting(&responding(4, 4))).is_ok();
                self.went(done, Some(function), !self.active);
            }
            Step::Reject(cause) => {
                let enhanced = self.history.first().and_then(|first| first.1)
                    == Some(Function::EnhancedInitiate);
                let function = if enhanced && cause == RejectCause::Enhancements {
                    Function::EnhancedReject
                } else {
                    Function::Reject
                };
                let done = self.session.reject(b"", cause).is_ok();
                self.went(done, Some(function), !self.active);
            }
            Step::Terminate => {
                let done = self.session.terminate().is_ok();
                // An active side may give up waiting; its peer sees an illegal sequence, which ends
                // the session as well.
                if self.active && self.history.len() == 1 && !self.ended {
                    assert!(done);
                    self.ended = true;
                    return self.said(&[Function::Terminate]);
                }
                self.went(done, Some(Function::Terminate), true);
            }
            Step::Send => {
                let done = self.session.send(b"x").is_ok();
                self.went(done, None, true);
            }
        }
    }

    /// Something came: it is taken where a legal sequence has it, and ends the session otherwise.
    fn came(&mut self, function: Option<Function>) {
        let events = events(&mut self.session);
        if self.ended {
            assert_eq!(events, [], "a session that is over is over");
            return self.said(&[]);
        }
        self.incoming += 1;
        self.history.push((!self.active, function));
        let failed = matches!(
            events.as_slice(),
            [SessionEvent::Ended(SessionEnd::Failed(_))]
        );
        assert_eq!(
            failed,
            !legal(&self.history),
            "{:?} {events:?}",
            self.history
        );
        assert_eq!(events.len(), 1);
        self.ended = failed || over(&self.history);
        if failed && function != Some(Function::Terminate) {
            self.said(&[Function::Terminate]);
        } else {
            self.said(&[]);
        }
    }

    /// Something was to be sent: that works where a legal sequence has it.
    fn went(&mut self, done: bool, function: Option<Function>, possible: bool) {
        self.history.push((self.active, function));
        let allowed = !self.ended && possible && self.history.len() > 1 && legal(&self.history);
        assert_eq!(done, allowed, "{:?}", self.history);
        if !done {
            self.history.pop();
            return self.said(&[]);
        }
        self.ended = over(&self.history);
        match function {
            Some(function) => self.said(&[function]),
            None => {
                let chunk = self.session.output().unwrap();
                assert_eq!(chunk.identifier, SEGMENT_IDENTIFIER);
            }
        }
    }

    /// These control messages are to be sent, and no others.
    fn said(&mut self, functions: &[Function]) {
        self.session.confirmed();
        for function in functions {
            assert_eq!(sent(&mut self.session).function, *function);
        }
        assert_eq!(self.session.output(), None);
        let ended = self.session.state() == SessionState::Ended;
        assert_eq!(ended, self.ended, "{:?}", self.history);
    }
}

/// Runs every sequence of up to four of these steps.
fn every_order(steps: &[Step], stand: impl Fn() -> Stand) -> usize {
    let mut count = 0;
    for length in 0..=4 {
        for number in 0..steps.len().pow(length) {
            let mut stand = stand();
            let mut rest = number;
            for _ in 0..length {
                stand.take(steps[rest % steps.len()]);
                rest /= steps.len();
            }
            count += 1;
        }
    }
    count
}

#[test]
fn mpa_sctp_08_all_orders_of_up_to_four_messages() {
    let mut steps = vec![Step::SegmentComes, Step::Terminate, Step::Send];
    steps.extend(Function::ALL.map(Step::Comes));
    for enhanced in [false, true] {
        assert_eq!(every_order(&steps, || Stand::active(enhanced)), 11_111);
    }
    steps.push(Step::Accept);
    steps.push(Step::Reject(RejectCause::Session));
    steps.push(Step::Reject(RejectCause::Enhancements));
    assert_eq!(every_order(&steps, Stand::passive), 30_941);
}

#[test]
fn mpa_sctp_08_chunks_that_nobody_can_place_end_the_session() {
    let far = u16::try_from(EARLY_MAX + 1).unwrap();
    let cases: [(u32, &[u8], SessionError); 5] = [
        (18, b"\0\0\0\x02", SessionError::Identifier(18)),
        (SEGMENT_IDENTIFIER, b"\0", SessionError::Short(1)),
        (
            CONTROL_IDENTIFIER,
            b"\0\0\0\x08",
            SessionError::Message(MessageError::Function(8)),
        ),
        (
            CONTROL_IDENTIFIER,
            b"\0\0\0\x04\0",
            SessionError::Message(MessageError::TerminateWithData(1)),
        ),
        (
            SEGMENT_IDENTIFIER,
            &far.to_be_bytes(),
            SessionError::Order(OrderError::Sequence {
                found: far,
                next: 0,
            }),
        ),
    ];
    for (identifier, bytes, error) in cases {
        let mut session = active(exchanging(4, 4));
        session.receive(identifier, bytes, Instant::now());
        assert_eq!(
            events(&mut session),
            [SessionEvent::Ended(SessionEnd::Failed(error))]
        );
        session.confirmed();
        assert_eq!(sent(&mut session).function, Function::Terminate);
    }
}

#[test]
fn mpa_sctp_08_what_waits_for_a_missing_chunk_is_bounded() {
    let mut order = Order::default();
    for ahead in 1..=EARLY_MAX {
        order.push(u16::try_from(ahead).unwrap(), 1, ahead).unwrap();
    }
    assert!(order.push(3, 1, 3).is_err(), "no number comes twice");
    assert_eq!(order.pop(), None);
    order.push(0, 1, 0).unwrap();
    for due in 0..=EARLY_MAX {
        assert_eq!(order.pop(), Some(due));
    }
    assert_eq!(order.pop(), None);

    let mut order = Order::default();
    order.push(1, EARLY_BYTES_MAX, ()).unwrap();
    let error = OrderError::Bytes(EARLY_BYTES_MAX + 1);
    assert_eq!(order.push(2, 1, ()), Err(error));
    order.push(0, 70_000, ()).unwrap();
    assert_eq!([order.pop(), order.pop()], [Some(()), Some(())]);
    order.push(3, EARLY_BYTES_MAX, ()).unwrap();
}

#[test]
fn mpa_sctp_08_numbers_wrap() {
    let mut order = Order::default();
    for number in 0..200_000u32 {
        let pair = number * 2;
        order.push((pair + 1) as u16, 2, pair + 1).unwrap();
        order.push(pair as u16, 2, pair).unwrap();
        assert_eq!([order.pop(), order.pop()], [Some(pair), Some(pair + 1)]);
    }
}
