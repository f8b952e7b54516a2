//! Files whose names are removed while clients have them open, by `millraced` over TCP.

use std::fs;
use std::net::SocketAddr;

use millrace_admin::client::{Method, Order};
use millrace_wire::nfs3::Stability;
use millrace_wire::nfs4::{
    Attribute, AttributeNumber, Bitmap, CloseOperation, Operation, OperationResults,
    OperationStatus as Status, ReadOperation, RenameOperation, StateId, WriteOperation,
};
use millrace_wire::xdr::{BoundedBytes, Bulk};

use crate::session_client::{ServerFolders, SessionClient, kill};

fn client(address: SocketAddr, owner: &'static [u8]) -> SessionClient {
    let mut client = SessionClient::join(address, owner);
    assert_eq!(client.reclaim_complete(), Status::Ok);
    client
}

fn write(client: &mut SessionClient, handle: &[u8], state: StateId, data: &[u8]) -> Status {
    let write = Operation::Write(WriteOperation {
        state,
        offset: 0,
        stable: Stability::FileSync,
        data: Bulk::inline(data),
    });
    client
        .run(&[Operation::Putfh(BoundedBytes(handle)), write])
        .status()
}

/// The bytes of a file and the number of its names.
fn read(
    client: &mut SessionClient,
    handle: &[u8],
    state: StateId,
) -> Result<(Vec<u8>, u32), Status> {
    let results = client.run(&[
        Operation::Putfh(BoundedBytes(handle)),
        Operation::Read(ReadOperation {
            state,
            offset: 0,
            count: 100,
        }),
        Operation::Getattr(Bitmap::of(&[AttributeNumber::Links])),
    ]);
    results.read(|status, all| {
        let [
            ..,
            OperationResults::Read(Ok(read)),
            OperationResults::Getattr(Ok(found)),
        ] = &all[..]
        else {
            return Err(status);
        };
        let Some(Ok(Attribute::Links(links))) = found.iter().next() else {
            panic!("{found:?}");
        };
        Ok((read.data.as_inline().unwrap().to_vec(), links))
    })
}

fn close(client: &mut SessionClient, handle: &[u8], open: StateId) {
    let close = Operation::Close(CloseOperation { sequence: 0, open });
    let results = client.run(&[Operation::Putfh(BoundedBytes(handle)), close]);
    assert_eq!(results.status(), Status::Ok);
}

#[test]
fn v4_open_34_files_that_others_remove_stay_until_they_are_closed() {
    let folders = ServerFolders::new();
    let (server, address) = folders.start();
    let mut reader = client(address, b"reader");
    let mut other = client(address, b"other");
    for export in [&b"memory"[..], b"data"] {
        let (removed, open) = reader.open(export, b"removed").unwrap();
        assert_eq!(write(&mut reader, &removed, open, b"content"), Status::Ok);
        let (replaced, second) = reader.open(export, b"replaced").unwrap();
        assert_eq!(write(&mut reader, &replaced, second, b"old"), Status::Ok);
        let (new, third) = other.open(export, b"new").unwrap();
        assert_eq!(write(&mut other, &new, third, b"new"), Status::Ok);
        let root = [Operation::Putrootfh(()), Operation::Lookup(export)];
        let results = other.run(&[
            root[0],
            root[1],
            Operation::Remove(b"removed"),
            Operation::Savefh(()),
            Operation::Rename(RenameOperation {
                from: b"new",
                to: b"replaced",
            }),
        ]);
        assert_eq!(results.status(), Status::Ok);

        let found = read(&mut reader, &removed, open);
        assert_eq!(found, Ok((b"content".to_vec(), 0)));
        let found = read(&mut reader, &replaced, second);
        assert_eq!(found, Ok((b"old".to_vec(), 0)));
        // By the handle alone, too.
        let found = read(&mut other, &removed, StateId::ANONYMOUS);
        assert_eq!(found, Ok((b"content".to_vec(), 0)));
        assert_eq!(write(&mut reader, &removed, open, b"CONTENT"), Status::Ok);
        let found = read(&mut reader, &removed, open);
        assert_eq!(found, Ok((b"CONTENT".to_vec(), 0)));
        // A file of the same name is another one.
        let (anew, fourth) = other.open(export, b"removed").unwrap();
        assert_ne!(anew, removed);
        assert_eq!(read(&mut other, &anew, fourth), Ok((Vec::new(), 1)));

        close(&mut reader, &removed, open);
        close(&mut reader, &replaced, second);
        for ended in [&removed, &replaced] {
            let found = read(&mut reader, ended, StateId::ANONYMOUS);
            assert_eq!(found, Err(Status::Stale));
        }
        let found = read(&mut other, &new, third);
        assert_eq!(found, Ok((b"new".to_vec(), 1)));
    }
    let names = fs::read_dir(folders.0.path().join("data")).unwrap();
    assert_eq!(names.count(), 2);
    kill(server);
}

#[test]
fn v4_open_34_files_of_clients_that_are_gone_end() {
    let folders = ServerFolders::new();
    let (server, address) = folders.start();
    let operator = folders.operator(&server);
    let mut other = client(address, b"other");
    for export in [&b"memory"[..], b"data"] {
        let mut reader = client(address, b"reader");
        let (removed, open) = reader.open(export, b"removed").unwrap();
        assert_eq!(write(&mut reader, &removed, open, b"content"), Status::Ok);
        let results = other.run(&[
            Operation::Putrootfh(()),
            Operation::Lookup(export),
            Operation::Remove(b"removed"),
        ]);
        assert_eq!(results.status(), Status::Ok);
        let found = read(&mut other, &removed, StateId::ANONYMOUS);
        assert_eq!(found, Ok((b"content".to_vec(), 0)));
        let path = format!("/api/v1/nfs4/clients/{:016x}?force=true", reader.id);
        let ended = operator.send(&Order::new(Method::Delete, path)).unwrap();
        assert_eq!(ended.status, 204, "{}", ended.body);
        let found = read(&mut other, &removed, StateId::ANONYMOUS);
        assert_eq!(found, Err(Status::Stale));
    }
    kill(server);
}
