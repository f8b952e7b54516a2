//! The phase of a connection, its deadline, and its end reason.

use std::time::Instant;

use super::config::VerbsConfig;
use crate::fabric::Ended;

/// The phases of a connection. It only moves down this list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum VerbsPhase {
    /// Resolving the peer's address.
    Resolving,
    /// Resolving the route.
    Routing,
    /// Waiting for the peer's answer.
    Connecting,
    /// Waiting for the application's decision.
    Deciding,
    /// The application has accepted; waiting for the peer's confirmation.
    Accepting,
    /// Messages are exchanged.
    Running,
    /// Sending posted work.
    Closing,
    /// Waiting for the peer's end.
    Disconnecting,
    /// The queue pair is in error: its work is being flushed.
    Draining,
    /// The queue pair is being destroyed.
    Destroying,
    /// Only events remain.
    Ended,
}

/// The action at a deadline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Late {
    /// The connection ends.
    Fail(Ended),
    /// The queue pair is destroyed without the remaining completions.
    Destroy,
}

/// The phase and deadline of a connection.
#[derive(Debug)]
pub(super) struct Course {
    phase: VerbsPhase,
    deadline: Option<Instant>,
    reason: Option<Ended>,
    was_running: bool,
}

impl Course {
    fn new(phase: VerbsPhase, deadline: Instant) -> Self {
        Self {
            phase,
            deadline: Some(deadline),
            reason: None,
            was_running: false,
        }
    }

    /// On the connecting side. One deadline applies until the peer has answered.
    pub(super) fn connecting(now: Instant, config: &VerbsConfig) -> Self {
        Self::new(VerbsPhase::Resolving, now + config.connect_wait)
    }

    /// On the accepting side.
    pub(super) fn deciding(now: Instant, config: &VerbsConfig) -> Self {
        Self::new(VerbsPhase::Deciding, now + config.decide_wait)
    }

    pub(super) fn phase(&self) -> VerbsPhase {
        self.phase
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Why it ends, if it does.
    pub(super) fn reason(&self) -> Option<&Ended> {
        self.reason.as_ref()
    }

    /// Whether it ever was established.
    pub(super) fn was_running(&self) -> bool {
        self.was_running
    }

    /// Whether work may be posted.
    pub(super) fn is_open(&self) -> bool {
        self.phase <= VerbsPhase::Running
    }

    /// Whether send requests may be passed to the device.
    pub(super) fn sends(&self) -> bool {
        matches!(self.phase, VerbsPhase::Running | VerbsPhase::Closing)
    }

    /// Whether it is ending.
    pub(super) fn is_ending(&self) -> bool {
        self.phase >= VerbsPhase::Draining
    }

    fn step(&mut self, from: VerbsPhase, to: VerbsPhase) -> bool {
        let moves = self.phase == from;
        if moves {
            self.phase = to;
        }
        moves
    }

    /// The address is known.
    pub(super) fn resolved(&mut self) -> bool {
        self.step(VerbsPhase::Resolving, VerbsPhase::Routing)
    }

    /// The route is known, and the request was sent.
    pub(super) fn asked(&mut self) -> bool {
        self.step(VerbsPhase::Routing, VerbsPhase::Connecting)
    }

    /// The application has accepted.
    pub(super) fn accepted(&mut self, now: Instant, config: &VerbsConfig) -> bool {
        let moves = self.step(VerbsPhase::Deciding, VerbsPhase::Accepting);
        if moves {
            self.deadline = Some(now + config.connect_wait);
        }
        moves
    }

    /// The peer has confirmed, explicitly or by a message. True the first time.
    pub(super) fn established(&mut self) -> bool {
        let moves = self.step(VerbsPhase::Connecting, VerbsPhase::Running)
            || self.step(VerbsPhase::Accepting, VerbsPhase::Running);
        if moves {
            self.deadline = None;
            self.was_running = true;
        }
        moves
    }

    /// The application closes: true if posted work is to be sent first, or else it ends now.
    pub(super) fn close(&mut self, now: Instant, config: &VerbsConfig) -> bool {
        let moves = self.step(VerbsPhase::Running, VerbsPhase::Closing);
        if moves {
            self.reason = Some(Ended::Local);
            self.deadline = Some(now + config.close_wait);
        }
        moves
    }

    /// All posted work was sent.
    pub(super) fn told_peer(&mut self) -> bool {
        self.step(VerbsPhase::Closing, VerbsPhase::Disconnecting)
    }

    /// It ends, and the queue pair is put into error. True the first time. The peer's end may be
    /// known before its cause; a cause then replaces it.
    pub(super) fn fail(&mut self, reason: Ended, now: Instant, config: &VerbsConfig) -> bool {
        if self.phase < VerbsPhase::Ended && matches!(self.reason, None | Some(Ended::Peer)) {
            self.reason = Some(reason);
        }
        let moves = self.phase < VerbsPhase::Draining;
        if moves {
            self.phase = VerbsPhase::Draining;
            self.deadline = Some(now + config.drain_wait);
        }
        moves
    }

    /// There is nothing to wait for any more, and the queue pair is to be destroyed.
    pub(super) fn destroying(&mut self) -> bool {
        let moves = self.step(VerbsPhase::Draining, VerbsPhase::Destroying);
        if moves {
            self.deadline = None;
        }
        moves
    }

    /// The queue pair is destroyed.
    pub(super) fn ended(&mut self) -> bool {
        self.step(VerbsPhase::Destroying, VerbsPhase::Ended)
    }

    /// The action due at `now`.
    pub(super) fn late(&self, now: Instant) -> Option<Late> {
        self.deadline.filter(|&deadline| deadline <= now)?;
        Some(match self.phase {
            VerbsPhase::Resolving => Late::Fail(Ended::TimedOut("resolving the peer's address")),
            VerbsPhase::Routing => Late::Fail(Ended::TimedOut("resolving the route to the peer")),
            VerbsPhase::Connecting => Late::Fail(Ended::TimedOut("the answer to the request")),
            VerbsPhase::Deciding => Late::Fail(Ended::TimedOut("the decision on the request")),
            VerbsPhase::Accepting => Late::Fail(Ended::TimedOut("the peer's confirmation")),
            VerbsPhase::Closing | VerbsPhase::Disconnecting => Late::Fail(Ended::Local),
            VerbsPhase::Draining => Late::Destroy,
            VerbsPhase::Running | VerbsPhase::Destroying | VerbsPhase::Ended => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn asking(now: Instant) -> Course {
        Course::connecting(now, &VerbsConfig::default())
    }

    #[test]
    fn both_sides_come_to_run() {
        let (now, config) = (Instant::now(), VerbsConfig::default());
        let mut active = asking(now);
        let mut passive = Course::deciding(now, &config);
        assert!(active.resolved() && active.asked());
        assert_eq!(active.deadline(), Some(now + config.connect_wait));
        assert!(!passive.established(), "nobody has accepted");
        assert!(passive.accepted(now, &config));
        for course in [&mut active, &mut passive] {
            assert!(course.established() && !course.established());
            assert_eq!(
                (course.phase(), course.deadline()),
                (VerbsPhase::Running, None)
            );
            assert!(course.was_running() && course.is_open() && course.sends());
        }
    }

    #[test]
    fn every_wait_before_and_after_has_its_deadline() {
        let (now, config) = (Instant::now(), VerbsConfig::default());
        let late = |course: &Course| course.late(now + config.connect_wait + config.close_wait);
        let timed_out = |what| Some(Late::Fail(Ended::TimedOut(what)));
        let mut course = asking(now);
        assert_eq!(course.late(now), None);
        assert_eq!(late(&course), timed_out("resolving the peer's address"));
        course.resolved();
        assert_eq!(late(&course), timed_out("resolving the route to the peer"));
        course.asked();
        assert_eq!(late(&course), timed_out("the answer to the request"));
        course.established();
        assert_eq!(late(&course), None);
        course.close(now, &config);
        assert_eq!(late(&course), Some(Late::Fail(Ended::Local)));
        course.told_peer();
        assert_eq!(late(&course), Some(Late::Fail(Ended::Local)));
        course.fail(Ended::Peer, now, &config);
        assert_eq!(course.late(now), None);
        assert_eq!(course.late(now + config.drain_wait), Some(Late::Destroy));
        course.destroying();
        assert_eq!(late(&course), None, "the device is waited for");
        course.ended();
        assert_eq!(
            (late(&course), course.reason()),
            (None, Some(&Ended::Local))
        );

        let mut course = Course::deciding(now, &config);
        assert_eq!(late(&course), timed_out("the decision on the request"));
        course.accepted(now, &config);
        assert_eq!(late(&course), timed_out("the peer's confirmation"));
    }

    #[test]
    fn a_cause_takes_the_place_of_the_mere_end() {
        let (now, config) = (Instant::now(), VerbsConfig::default());
        let mut course = asking(now);
        course.fail(Ended::Peer, now, &config);
        course.fail(Ended::TimedOut("silence"), now, &config);
        course.fail(Ended::Local, now, &config);
        assert_eq!(course.reason(), Some(&Ended::TimedOut("silence")));
        assert!(!course.was_running());
    }

    proptest! {
        /// In any order of events: a connection only moves forward, ends at most once in each way,
        /// and has a deadline whenever it waits for anything but the device.
        #[test]
        fn a_connection_only_moves_on(steps in prop::collection::vec(0_u8..11, 0..60)) {
            let (now, config) = (Instant::now(), VerbsConfig::default());
            let mut course = asking(now);
            let mut before = course.phase();
            for step in steps {
                let moved = match step {
                    0 => course.resolved(),
                    1 => course.asked(),
                    2 => course.accepted(now, &config),
                    3 => course.established(),
                    4 => course.close(now, &config),
                    5 => course.told_peer(),
                    6 => course.fail(Ended::Peer, now, &config),
                    7 => course.fail(Ended::Setup("x"), now, &config),
                    8 => course.destroying(),
                    9 => course.ended(),
                    _ => {
                        course.late(now);
                        false
                    }
                };
                prop_assert_eq!(moved, course.phase() > before);
                prop_assert!(course.phase() >= before);
                before = course.phase();
                let waits = !matches!(
                    before,
                    VerbsPhase::Running | VerbsPhase::Destroying | VerbsPhase::Ended
                );
                prop_assert_eq!(course.deadline().is_some(), waits);
                prop_assert_eq!(course.reason().is_some(), before > VerbsPhase::Running);
            }
        }
    }
}
