//! Clients of NFS version 4 and their state, as the tests set them.

use std::sync::Mutex;

use millrace_admin::control::{ControlError, Nfs4Control};
use millrace_admin::status::*;

/// Two clients, an open and locks of the first one, and a grace period.
pub struct StateOfClients {
    pub clients: Mutex<Vec<Nfs4Client>>,
    pub states: Mutex<Vec<Nfs4State>>,
    pub grace: Mutex<GraceStatus>,
}

pub fn client(id: &str) -> Nfs4Client {
    Nfs4Client {
        id: id.to_owned(),
        owner: "Linux NFSv4.2 host".to_owned(),
        address: Some("192.0.2.1".to_owned()),
        minor_version: Some(2),
        sessions: 1,
        connections: vec![7],
        callbacks: Nfs4Callbacks::Up,
        confirmed: true,
        age_seconds: 600.0,
        lease_left_seconds: 61.0,
        silent_seconds: None,
        courtesy_left_seconds: None,
        reclaims: false,
        recorded: true,
        opens: 3,
        lock_owners: 1,
        locked_ranges: 5,
        delegations: 0,
        revoked: 0,
    }
}

pub fn state(stateid: &str, kind: Nfs4StateKind) -> Nfs4State {
    let is_lock = kind == Nfs4StateKind::Lock;
    let range = |offset, length, exclusive| LockRange {
        offset,
        length,
        exclusive,
    };
    let ranges = [range(0, Some(100), true), range(200, None, false)];
    Nfs4State {
        stateid: stateid.to_owned(),
        kind,
        client: "5f2a9c0000000001".to_owned(),
        address: Some("192.0.2.1".to_owned()),
        export: Some("/scratch".to_owned()),
        file: "00c0ffee".to_owned(),
        age_seconds: 30.0,
        owner: Some("open id:\\x00".to_owned()),
        access: (!is_lock).then_some(Nfs4Access::Both),
        deny: (!is_lock).then_some(Nfs4Access::None),
        ranges: if is_lock { ranges.to_vec() } else { Vec::new() },
        range_count: if is_lock { 9 } else { 0 },
        waiting: u64::from(is_lock),
        recalled_seconds: None,
        return_within_seconds: None,
        revocation: None,
    }
}

impl Default for StateOfClients {
    fn default() -> Self {
        let silent = Nfs4Client {
            silent_seconds: Some(300.0),
            lease_left_seconds: 0.0,
            courtesy_left_seconds: Some(86_100.0),
            callbacks: Nfs4Callbacks::Down,
            ..client("5f2a9c0000000002")
        };
        Self {
            clients: Mutex::new(vec![client("5f2a9c0000000001"), silent]),
            states: Mutex::new(vec![
                state("5f2a01000000000000000001", Nfs4StateKind::Open),
                state("5f2a02000000000100000001", Nfs4StateKind::Lock),
            ]),
            grace: Mutex::new(GraceStatus {
                active: true,
                left_seconds: 42.0,
                waits_for: 3,
                awaited: vec![
                    AwaitedClient {
                        owner: "here".to_owned(),
                        client: Some("5f2a9c0000000001".to_owned()),
                    },
                    AwaitedClient {
                        owner: "away".to_owned(),
                        client: None,
                    },
                ],
            }),
        }
    }
}

/// A page of items, and where the next one begins.
fn page<T: Clone>(items: &[T], page: ListPage) -> (Vec<T>, Option<u32>) {
    let first = (page.after as usize).min(items.len());
    let end = (first + page.limit).min(items.len());
    let next = (end < items.len()).then(|| u32::try_from(end).unwrap());
    (items[first..end].to_vec(), next)
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Nfs4Control for StateOfClients {
    fn clients(&self, wanted: ListPage) -> Result<Nfs4Clients, ControlError> {
        let (clients, next) = page(&self.clients.lock().unwrap(), wanted);
        Ok(Nfs4Clients { clients, next })
    }

    fn client(&self, id: u64) -> Result<Option<Nfs4Client>, ControlError> {
        let clients = self.clients.lock().unwrap();
        let mut clients = clients.iter();
        Ok(clients.find(|one| one.id == format!("{id:016x}")).cloned())
    }

    fn end_client(&self, id: u64) -> Result<bool, ControlError> {
        let mut clients = self.clients.lock().unwrap();
        let before = clients.len();
        clients.retain(|one| one.id != format!("{id:016x}"));
        Ok(clients.len() < before)
    }

    fn states(
        &self,
        filter: &Nfs4StateFilter,
        wanted: ListPage,
    ) -> Result<Nfs4States, ControlError> {
        let states = self.states.lock().unwrap();
        let states = states.iter().filter(|one| {
            let client = filter.client.map(|id| format!("{id:016x}"));
            let address = filter.address.map(|address| address.to_string());
            client.is_none_or(|client| one.client == client)
                && (address.is_none() || one.address == address)
                && filter.kind.is_none_or(|kind| one.kind == kind)
                && (filter.export.is_none() || one.export == filter.export)
        });
        let (states, next) = page(&states.cloned().collect::<Vec<_>>(), wanted);
        Ok(Nfs4States { states, next })
    }

    fn state(&self, stateid: [u8; 12]) -> Result<Option<Nfs4State>, ControlError> {
        let states = self.states.lock().unwrap();
        let mut states = states.iter();
        Ok(states
            .find(|one| one.stateid == hexadecimal(&stateid))
            .cloned())
    }

    fn revoke(&self, stateid: [u8; 12]) -> Result<bool, ControlError> {
        let mut states = self.states.lock().unwrap();
        let before = states.len();
        states.retain(|one| one.stateid != hexadecimal(&stateid));
        Ok(states.len() < before)
    }

    fn grace(&self) -> Result<GraceStatus, ControlError> {
        Ok(self.grace.lock().unwrap().clone())
    }

    fn end_grace(&self) -> Result<bool, ControlError> {
        Ok(std::mem::take(&mut *self.grace.lock().unwrap()).active)
    }
}
