//! Draining on request, and resuming.

use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_admin::control::ControlError;
use millrace_admin::status::{DrainOrder, DrainPhase, DrainStatus};
use millrace_reactor::ReactorHandle;

use super::ticket::Resume;
use crate::rpc::OpenWork;
use crate::service::control::{REACTOR_ANSWER_TIMEOUT, ServiceControl};
use crate::service::devices;
use crate::service::phase::ServicePhase;
use crate::service::worker::ReactorMessage;

/// The interval of attempts to use an address again.
const AGAIN: Duration = Duration::from_millis(20);

impl ServiceControl {
    /// Starts a drain with a deadline, or changes the deadline.
    pub(in crate::service) fn begin_drain(
        &self,
        order: DrainOrder,
    ) -> Result<DrainStatus, ControlError> {
        let changing = self.lock_changes();
        // An invalid duration is taken as zero.
        let timeout = Duration::try_from_secs_f64(order.deadline_seconds).unwrap_or_default();
        let deadline = Instant::now() + timeout;
        self.phase.set(ServicePhase::Draining(deadline))?;
        for reactor in &self.reactors {
            reactor
                .send(ReactorMessage::Drain {
                    deadline,
                    ends: false,
                })
                .map_err(|_| {
                    ControlError::Unavailable(format!(
                        "{} does not accept messages",
                        reactor.name()
                    ))
                })?;
        }
        drop(changing);
        self.drain_progress()
    }

    /// The progress of a drain.
    pub(in crate::service) fn drain_progress(&self) -> Result<DrainStatus, ControlError> {
        let deadline = self.phase.get().deadline();
        let mut sum = OpenWork::default();
        for open in self.ask_all(ReactorMessage::Progress)? {
            sum += open;
        }
        let phase = match deadline {
            None => DrainPhase::Serving,
            Some(_) if sum.connections > 0 => DrainPhase::Draining,
            Some(_) => DrainPhase::Drained,
        };
        let left = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
        let draining = phase == DrainPhase::Draining;
        Ok(DrainStatus {
            phase,
            remaining_seconds: deadline
                .filter(|_| draining)
                .map(|deadline| left(deadline).as_secs_f64()),
            connections: sum.connections as u64,
            requests_in_flight: sum.in_flight as u64,
            exposures: sum.exposures,
        })
    }

    /// Resumes service.
    pub(in crate::service) fn end_drain(&self) -> Result<DrainStatus, ControlError> {
        let changing = self.lock_changes();
        let phase = self.phase.get();
        phase.check()?;
        if let Some(deadline) = phase.deadline() {
            let in_force = self.in_force();
            let listeners = in_force.listeners.iter();
            let resume = Arc::new(Resume {
                fabric: listeners.map(|one| (one.id, one.address)).collect(),
                rpc: in_force.rpc,
            });
            // The first one listens, so it comes last: all serve the connections that it accepts.
            for (number, reactor) in self.reactors.iter().enumerate().rev() {
                let resume = (number == 0).then(|| Arc::clone(&resume));
                // A listener on devices releases its address shortly after it stops.
                let waits = resume.is_some() && devices::are_asked_for(&in_force.config);
                let until = Instant::now()
                    + if waits {
                        REACTOR_ANSWER_TIMEOUT
                    } else {
                        Duration::ZERO
                    };
                let served = loop {
                    match serve(reactor, resume.clone()) {
                        Err(_) if Instant::now() < until => std::thread::sleep(AGAIN),
                        served => break served,
                    }
                };
                if let Err(reason) = served {
                    for reactor in &self.reactors {
                        let ends = false;
                        // One that does not accept messages has not been asked to serve either.
                        let _ = reactor.send(ReactorMessage::Drain { deadline, ends });
                    }
                    return Err(ControlError::Unavailable(reason));
                }
            }
            self.phase.set(ServicePhase::Serving)?;
        }
        drop(changing);
        self.drain_progress()
    }
}

/// Makes a reactor serve again, and listen if it gets addresses. Returns the reason of a failure.
fn serve(
    reactor: &ReactorHandle<ReactorMessage>,
    resume: Option<Arc<Resume>>,
) -> Result<(), String> {
    let (answer, answered) = crossbeam_channel::bounded(1);
    match reactor.send(ReactorMessage::Serve(resume, answer)) {
        Ok(()) => answered
            .recv_timeout(REACTOR_ANSWER_TIMEOUT)
            .unwrap_or_else(|_| Err(format!("{} does not answer", reactor.name()))),
        Err(_) => Err(format!("{} does not accept messages", reactor.name())),
    }
}
