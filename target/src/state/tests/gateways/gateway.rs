//! A gateway: the home of its state, its session, and what its threads are doing.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use super::LEASE;
use super::disk::GatewayDisk;
use super::shared_files::{SharedFiles, SharedSession};
use crate::state::{
    FileKey, GatewayRecord, HostLockAction, HostLockAnswer, HostLockOrder, StateConfig, StateHome,
};

/// The export of all files.
pub(super) const EXPORT: u64 = 7;

/// One run of a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GatewayRun {
    pub gateway: usize,
    pub run: u32,
}

/// What the control thread of a gateway does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ControlStep {
    /// It is not running.
    Down,
    /// It starts: others are to stop granting.
    AwaitStart,
    /// The old session is to be ended.
    EndOld,
    /// The old session has ended, and was there or not.
    Begin(bool),
    /// Clients may come.
    Serve,
    /// It looks at the records.
    Poll,
    /// Grants are held, or are to be, and its record is to say so.
    Enforce,
    /// Its record says that it grants, and grants are to be let go.
    LetGo,
    /// It stops.
    Stop,
    /// Others are to stop granting until then.
    AwaitStop(u64),
    /// Its session is to be ended.
    EndOwn,
    /// It is to take the place of another one.
    TakeOver(usize),
    /// Others are to stop granting until then.
    AwaitOthers(usize, u64),
    /// The session of the other one is to be ended. The record of that one before.
    EndOther(usize, GatewayRecord),
    /// It has ended, and was there or not.
    Fence(usize, GatewayRecord, bool),
    /// Its clients may reclaim, or not.
    Adopt(usize, bool),
}

/// What the thread for locks of files reports.
#[derive(Debug)]
enum SharedLockReport {
    Answer(u64, HostLockAnswer),
    Lost,
}

/// What a gateway is asked to do when it is at leisure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ControlWish {
    Stop,
    TakeOver(usize),
}

/// A gateway.
#[derive(Debug)]
pub(super) struct SimulatedGateway {
    pub name: String,
    pub run: u32,
    pub control: ControlStep,
    pub wish: Option<ControlWish>,
    pub home: Option<StateHome>,
    pub disk: GatewayDisk,
    /// The last session under its name.
    pub session: Option<SharedSession>,
    /// Its control thread does not get on before.
    pub stalled_until: u64,
    /// Who takes its place at the moment.
    pub taken_by: Option<GatewayRun>,
    /// Whether the thread for locks of files is about to act.
    pub host_is_due: bool,
    /// The same of the thread for records.
    pub disk_is_due: bool,
    orders: VecDeque<HostLockOrder>,
    reports: VecDeque<SharedLockReport>,
    /// Files that are open for locks in its session.
    open_files: HashSet<FileKey>,
}

fn config(gateway: usize, run: u32, clients: usize) -> StateConfig {
    let most = u32::try_from(clients).expect("few") + 8;
    let mut start = [0; 16];
    let gateway = u32::try_from(gateway).expect("few");
    // Client IDs differ by these bytes.
    start[12..].copy_from_slice(&(run << 8 | gateway).to_be_bytes());
    StateConfig {
        start,
        reactors: 1,
        lease: LEASE,
        clients: most,
        sessions: most * 2,
        delegations: false,
        states_per_step: 1,
        ..StateConfig::default()
    }
}

impl SimulatedGateway {
    pub fn new(index: usize) -> Self {
        Self {
            name: format!("gateway-{index:02}"),
            run: 0,
            control: ControlStep::Down,
            wish: None,
            home: None,
            disk: GatewayDisk::default(),
            session: None,
            stalled_until: 0,
            taken_by: None,
            host_is_due: false,
            disk_is_due: false,
            orders: VecDeque::new(),
            reports: VecDeque::new(),
            open_files: HashSet::new(),
        }
    }

    /// Lets clients come. Nothing is granted before that is let go.
    pub fn serve(&mut self, index: usize, clients: usize, now: Duration) {
        let mut home = StateHome::new(config(index, self.run, clients));
        home.hold_grants(true);
        let (recovered, progress) = self.disk.recovered();
        home.recover(recovered, progress, now);
        self.home = Some(home);
    }

    /// What is left of a process that has ended.
    pub fn end(&mut self) {
        self.run += 1;
        self.control = ControlStep::Down;
        self.wish = None;
        self.home = None;
        self.stalled_until = 0;
        self.host_is_due = false;
        self.disk_is_due = false;
        self.orders.clear();
        self.reports.clear();
        self.open_files.clear();
    }

    /// Takes orders for locks of files. Returns whether there is something to do.
    pub fn take_orders(&mut self) -> bool {
        if let Some(home) = &mut self.home {
            let orders = std::iter::from_fn(|| home.take_host_order());
            self.orders.extend(orders);
        }
        !self.orders.is_empty() || !self.reports.is_empty()
    }

    /// Carries the next order out.
    pub fn carry_out(&mut self, files: &mut SharedFiles) {
        let Some(order) = self.orders.pop_front() else {
            return;
        };
        let session = self.session.filter(|session| files.has_session(*session));
        let key = order.file;
        let answer = match (&order.action, session) {
            (HostLockAction::Acquire(_, ranges, mode), Some(session)) => {
                self.open_files.insert(key);
                let mut answer = HostLockAnswer::Free;
                for range in ranges {
                    if let Some((range, mode)) = files.conflict(session, &key, range, *mode) {
                        answer = HostLockAnswer::Taken(range, mode);
                        break;
                    }
                    files.set(session, &key, range, Some(*mode));
                }
                answer
            }
            (HostLockAction::Test(_, range, mode), Some(session)) => {
                self.open_files.insert(key);
                match files.conflict(session, &key, range, *mode) {
                    Some((range, mode)) => HostLockAnswer::Taken(range, mode),
                    None => HostLockAnswer::Free,
                }
            }
            (HostLockAction::Settle(parts), Some(session)) => {
                // A lock in place of none would be a grant without a question; the test of the host
                // excludes that.
                for part in parts.iter().filter(|_| self.open_files.contains(&key)) {
                    files.set(session, &key, &part.range, part.mode);
                }
                return;
            }
            (HostLockAction::Close, session) => {
                self.open_files.remove(&key);
                if let Some(session) = session {
                    files.close(session, &key);
                }
                return;
            }
            (_, None) => HostLockAnswer::Unavailable,
        };
        if let Some(ticket) = order.ticket() {
            let report = SharedLockReport::Answer(ticket, answer);
            self.reports.push_back(report);
        }
    }

    /// Tells the home what the next report says. Returns whether there was one.
    pub fn report(&mut self, now: Duration) -> bool {
        let (Some(home), Some(report)) = (&mut self.home, self.reports.pop_front()) else {
            return false;
        };
        match report {
            SharedLockReport::Answer(ticket, answer) => home.host_answered(ticket, answer, now),
            SharedLockReport::Lost => home.lose_host_locks(EXPORT),
        }
        true
    }

    /// The session has ended while the gateway runs.
    pub fn lose_session(&mut self) {
        self.reports.push_back(SharedLockReport::Lost);
    }

    /// Whether nothing of an ended session is left.
    pub fn has_closed_all(&self) -> bool {
        self.open_files.is_empty() && self.orders.is_empty() && self.reports.is_empty()
    }
}
