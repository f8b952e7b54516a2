//! What exports ask for.

use std::sync::Arc;

use millrace::access::Security;
use millrace_gss::{Enctype, Identity, User};
use millrace_wire::nfs3::{
    AccessArguments, AccessResults, FsinfoResults, GetattrResults, LookupResults, NameInDirectory,
    Procedure, Status,
};
use millrace_wire::rpc::GssService;
use millrace_wire::xdr::from_bytes;

use super::initiator::Initiator;
use super::{SERVICES, World, encoded, nfs};
use crate::support::results;

/// The status of a LOOKUP that is secured so.
fn lookup(world: &World, security: Security) -> Result<(), Status> {
    let arguments = NameInDirectory {
        directory: world.root(),
        name: b".",
    };
    let bytes = call(world, security, Procedure::Lookup, &encoded(&arguments));
    let found = from_bytes::<LookupResults>(&bytes).unwrap();
    found.map(|_| ()).map_err(|failure| failure.status)
}

fn call(world: &World, security: Security, procedure: Procedure, arguments: &[u8]) -> Vec<u8> {
    let arguments = super::calls::Raw(arguments);
    match security.service() {
        Some(service) => world.call(nfs(procedure), service, &arguments).unwrap(),
        None => {
            let user = (security == Security::Sys).then_some((0, 0));
            *world.user.borrow_mut() = user;
            let message = world.message(nfs(procedure), &arguments);
            results(&world.send(&message).message).to_vec()
        }
    }
}

#[test]
fn gss_sec_01_and_02_exports_take_exactly_what_they_list() {
    for listed in Security::ALL {
        let world = World::new([listed]);
        for security in Security::ALL {
            let expected = match security == listed {
                true => Ok(()),
                false => Err(Status::AccessDenied),
            };
            assert_eq!(
                lookup(&world, security),
                expected,
                "{listed:?} {security:?}"
            );
        }
    }
    let world = World::new([Security::Krb5i, Security::Sys]);
    assert_eq!(lookup(&world, Security::Krb5i), Ok(()));
    assert_eq!(lookup(&world, Security::Sys), Ok(()));
    assert_eq!(lookup(&world, Security::Krb5p), Err(Status::AccessDenied));
}

#[test]
fn gss_sec_05_the_root_of_an_export_may_be_looked_at_with_less() {
    let world = World::new([Security::Krb5p]);
    let root = encoded(&world.root());
    for security in Security::ALL {
        let getattr = call(&world, security, Procedure::Getattr, &root);
        assert!(from_bytes::<GetattrResults>(&getattr).unwrap().is_ok());
        let fsinfo = call(&world, security, Procedure::Fsinfo, &root);
        let fsinfo = from_bytes::<FsinfoResults>(&fsinfo).unwrap().unwrap();
        // The message with the data and what protects it fits into one buffer.
        assert_eq!(fsinfo.write_max, (1 << 20) - (64 << 10));
        assert_eq!(fsinfo.read_max, fsinfo.write_max);
    }
    // Nothing else of it, and no other object.
    let access = encoded(&AccessArguments {
        object: world.root(),
        access: 1,
    });
    let asked = call(&world, Security::Sys, Procedure::Access, &access);
    let asked = from_bytes::<AccessResults>(&asked).unwrap();
    assert!(asked.is_err());
    assert_eq!(lookup(&world, Security::Sys), Err(Status::AccessDenied));
}

#[test]
fn gss_sec_12_and_14_the_user_of_the_principal_is_judged() {
    let world = World::new([Security::Krb5]);
    let numbers = |count: u32| (100..100 + count).collect::<Arc<[u32]>>();
    let client = |user| {
        let identity = Identity {
            principal: "somebody@EXAMPLE.COM".into(),
            user,
        };
        Initiator::new(&world.contexts, identity, Enctype::Aes128Sha256)
    };
    // The root folder belongs to user 0 and group 0, and others may not write there.
    let may = |client: &Initiator| {
        let arguments = AccessArguments {
            object: world.root(),
            access: 0x3f,
        };
        let bytes = world
            .call_by(client, nfs(Procedure::Access), GssService::None, &arguments)
            .unwrap();
        from_bytes::<AccessResults>(&bytes).unwrap().unwrap().access & 0x0c != 0
    };
    let user = |uid, gid, groups| Some(User { uid, gid, groups });
    assert!(may(&client(user(0, 0, numbers(0)))));
    assert!(!may(&client(user(7, 7, numbers(100)))));
    assert!(!may(&client(None)), "anonymous");
    for service in SERVICES {
        assert!(world.call(super::NULL, service, &()).is_ok());
    }
}
