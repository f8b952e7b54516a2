//! Byte-range locks of clients and of processes of the host meet, by `millraced` over TCP. This
//! program is the process of the host.

use std::fs::File;

use millrace_wire::nfs4::{
    ConflictingLock, LockFailure, LockOperation, LockType, Locker, LocktOperation, LockuOperation,
    NewLockOwner, Operation, OperationResults, OperationStatus as Status, StateId, StateOwner,
};
use millrace_wire::xdr::BoundedBytes;
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;

use crate::millraced::Server;
use crate::session_client::{ServerFolders, SessionClient, kill};

/// A client with a file open, and the same file on the host.
struct HostWorld {
    client: SessionClient,
    handle: Vec<u8>,
    open: StateId,
    file: File,
    server: Server,
    folders: ServerFolders,
}

const BUSY: Result<(), Errno> = Err(Errno::AGAIN);

impl HostWorld {
    fn new() -> Self {
        let folders = ServerFolders::new();
        let (server, address) = folders.start();
        let mut client = SessionClient::join(address, b"client");
        assert_eq!(client.reclaim_complete(), Status::Ok);
        let (handle, open) = client.open(b"data", b"file").unwrap();
        let path = folders.0.path().join("data/file");
        let file = File::options().read(true).write(true).open(path).unwrap();
        Self {
            client,
            handle,
            open,
            file,
            server,
            folders,
        }
    }

    /// Tries to lock the whole file on the host.
    fn on_host(&self, operation: FlockOperation) -> Result<(), Errno> {
        fcntl_lock(&self.file, operation)
    }

    /// The lock stateid, or who is in the way.
    fn lock(
        &mut self,
        kind: LockType,
        offset: u64,
        length: u64,
    ) -> Result<StateId, (u64, Vec<u8>)> {
        let lock = Operation::Lock(LockOperation {
            kind,
            reclaim: false,
            offset,
            length,
            locker: Locker::New(NewLockOwner {
                open_sequence: 0,
                open: self.open,
                lock_sequence: 0,
                owner: StateOwner {
                    client: self.client.id,
                    owner: BoundedBytes(b"locker"),
                },
            }),
        });
        let put = Operation::Putfh(BoundedBytes(&self.handle));
        let results = self.client.run(&[put, lock]);
        results.read(|_, all| match &all[2] {
            OperationResults::Lock(Ok(state)) => Ok(*state),
            OperationResults::Lock(Err(LockFailure::Denied(denied))) => Err(holder(denied)),
            other => panic!("{other:?}"),
        })
    }

    fn test(&mut self, kind: LockType) -> Result<(), (u64, Vec<u8>)> {
        let test = Operation::Lockt(LocktOperation {
            kind,
            offset: 0,
            length: 10,
            owner: StateOwner {
                client: self.client.id,
                owner: BoundedBytes(b"another"),
            },
        });
        let put = Operation::Putfh(BoundedBytes(&self.handle));
        let results = self.client.run(&[put, test]);
        results.read(|_, all| match &all[2] {
            OperationResults::Lockt(Ok(())) => Ok(()),
            OperationResults::Lockt(Err(LockFailure::Denied(denied))) => Err(holder(denied)),
            other => panic!("{other:?}"),
        })
    }

    fn unlock(&mut self, lock: StateId, offset: u64, length: u64) {
        let unlock = Operation::Locku(LockuOperation {
            kind: LockType::Write,
            sequence: 0,
            lock: StateId {
                sequence: 0,
                ..lock
            },
            offset,
            length,
        });
        let put = Operation::Putfh(BoundedBytes(&self.handle));
        assert_eq!(self.client.run(&[put, unlock]).status(), Status::Ok);
    }
}

fn holder(denied: &ConflictingLock<'_>) -> (u64, Vec<u8>) {
    (denied.owner.client, denied.owner.owner.0.to_vec())
}

#[test]
fn v4_lock_19_a_process_of_the_host_meets_locks_of_clients() {
    let mut world = HostWorld::new();
    let lock = world.lock(LockType::Read, 100, 10).unwrap();
    assert_eq!(
        world.on_host(FlockOperation::NonBlockingLockExclusive),
        BUSY
    );
    assert_eq!(world.on_host(FlockOperation::NonBlockingLockShared), Ok(()));
    assert_eq!(world.on_host(FlockOperation::NonBlockingUnlock), Ok(()));
    world.lock(LockType::Write, 200, 10).unwrap();
    assert_eq!(world.on_host(FlockOperation::NonBlockingLockShared), BUSY);
    // A process that waits gets the file when all locks are gone.
    world.unlock(lock, 0, u64::MAX);
    assert_eq!(world.on_host(FlockOperation::LockExclusive), Ok(()));
    kill(world.server);
    drop(world.folders);
}

#[test]
fn v4_lock_19_locks_leave_the_host_with_the_open() {
    let mut world = HostWorld::new();
    world.lock(LockType::Write, 0, u64::MAX).unwrap();
    assert_eq!(world.on_host(FlockOperation::NonBlockingLockShared), BUSY);
    let close = Operation::Close(millrace_wire::nfs4::CloseOperation {
        sequence: 0,
        open: world.open,
    });
    let put = Operation::Putfh(BoundedBytes(&world.handle));
    assert_eq!(world.client.run(&[put, close]).status(), Status::Ok);
    assert_eq!(world.on_host(FlockOperation::LockExclusive), Ok(()));
    kill(world.server);
}

#[test]
fn v4_lock_20_a_lock_of_the_host_denies_those_of_clients() {
    let mut world = HostWorld::new();
    let host = (0, b"host".to_vec());
    world
        .on_host(FlockOperation::NonBlockingLockShared)
        .unwrap();
    assert_eq!(world.lock(LockType::Write, 0, 10), Err(host.clone()));
    assert_eq!(world.test(LockType::Write), Err(host.clone()));
    assert_eq!(world.test(LockType::Read), Ok(()));
    let lock = world.lock(LockType::Read, 0, 10).unwrap();
    assert_eq!(world.lock(LockType::Write, 0, 10), Err(host.clone()));
    assert_eq!(
        world.on_host(FlockOperation::NonBlockingLockExclusive),
        BUSY
    );
    world.on_host(FlockOperation::NonBlockingUnlock).unwrap();
    world.lock(LockType::Write, 0, 10).unwrap();
    assert_eq!(world.on_host(FlockOperation::NonBlockingLockShared), BUSY);
    world.unlock(lock, 0, 10);
    world.on_host(FlockOperation::LockExclusive).unwrap();
    assert_eq!(world.test(LockType::Read), Err(host));
    kill(world.server);
}
