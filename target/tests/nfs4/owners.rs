//! Owners and groups by name.

use std::cell::Cell;
use std::time::{Duration, Instant};

use millrace::access::Security;
use millrace::call::Answer;
use millrace::nfs4::OwnerDomain;
use millrace::rpc::{GssAuthenticator, GssLimits};
use millrace_gss::Enctype;
use millrace_reactor::Clock;
use millrace_wire::nfs4::{
    AccessControlEntry, Attribute, AttributeNumber as Number, Attributes, Bitmap, COMPOUND,
    Compound, CreateMode, HasStatus, NewObject, OpenClaim, OpenOperation, Operation,
    OperationResults, OperationStatus as Status, StateOwner, ace_flags, ace_mask, share,
};
use millrace_wire::rpc::GssService;
use millrace_wire::xdr::{Array, BoundedBytes};

use crate::initiator::{self, Initiator};
use crate::support::accounts::{FakeAccounts, Gate};
use crate::support::message::encoded;
use crate::support::nfs4::{Bench4, Results4, create, list, put, set};
use crate::support::{Chunks, block_on, results, rules};

const OWNERS: Bitmap = Bitmap::of(&[Number::Owner, Number::OwnerGroup]);

/// How a call is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Sys,
    Kerberos,
}

use How::{Kerberos, Sys};

/// A server with a domain, and a client with a context.
struct NamedBench {
    bench: Bench4,
    clock: Clock,
    gate: Gate,
    client: Initiator,
    xid: Cell<u32>,
}

impl NamedBench {
    fn new() -> Self {
        let mut rules = rules("/export");
        rules.security = [Security::Krb5, Security::Sys].into();
        let bench = Bench4::with([rules]);
        let contexts = initiator::contexts();
        let gss = GssAuthenticator::new(&contexts, GssLimits::default());
        let _ = bench.programs.clone().with_gss(gss);
        let (clock, accounts) = (Clock::new(Instant::now()), FakeAccounts::default());
        let gate = accounts.gate.clone();
        let domain = OwnerDomain::new("Example.org", accounts);
        bench.programs.programs().0.name_owners(domain, &clock);
        Self {
            bench,
            clock,
            gate,
            client: Initiator::new(&contexts, initiator::user(0), Enctype::Aes128Sha256),
            xid: Cell::new(1000),
        }
    }

    /// Executes operations behind a SEQUENCE, as helper threads answer.
    fn run(&self, how: How, operations: &[Operation<'_>]) -> Results4 {
        let all = [&[self.bench.next_sequence()], operations].concat();
        let message = match how {
            Sys => self.bench.compound_message(&all),
            Kerberos => {
                let compound = Compound {
                    minor_version: 2,
                    operations: &all,
                    ..Compound::default()
                };
                self.xid.set(self.xid.get() + 1);
                let (called, bytes) = ((100_003, 4, COMPOUND), encoded(&compound));
                let (xid, service) = (self.xid.get(), GssService::None);
                self.client.call(xid, called, service, &bytes)
            }
        };
        let mut chunks = Chunks::default();
        let (answer, reply, items) = block_on(self.bench.exchange(&message, &[], &mut chunks));
        assert_eq!(answer, Answer::Send);
        let sequence = self.client.sequence.get();
        let bytes = match how {
            Sys => results(&reply).to_vec(),
            Kerberos => (self.client.results(GssService::None, sequence, &reply)).unwrap(),
        };
        Results4 { bytes, items }
    }

    /// The status of the last operation.
    fn status(&self, how: How, operations: &[Operation<'_>]) -> Status {
        let results = self.run(how, operations);
        let (_, all) = results.read();
        all.last().map(HasStatus::status).unwrap()
    }

    fn set(&self, how: How, handle: &[u8], attributes: &[Attribute<'_>]) -> Status {
        let mut values = [0; 1024];
        let given = Attributes::build(attributes, &mut values).unwrap();
        self.status(how, &[put(handle), set(given)])
    }

    /// Owner and group as they are told.
    fn owners(&self, how: How, handle: &[u8]) -> [String; 2] {
        let results = self.run(how, &[put(handle), Operation::Getattr(OWNERS)]);
        texts(&results.attributes())
    }

    /// Gives a file away by numbers.
    fn give(&self, handle: &[u8], owner: &[u8], group: &[u8]) {
        let both = [Attribute::Owner(owner), Attribute::OwnerGroup(group)];
        assert_eq!(self.set(Sys, handle, &both), Status::Ok);
    }
}

fn texts(attributes: &Attributes<'_>) -> [String; 2] {
    let text = |number| match attributes.get(number).unwrap() {
        Some(Attribute::Owner(text) | Attribute::OwnerGroup(text)) => {
            String::from_utf8(text.to_vec()).unwrap()
        }
        other => panic!("{other:?}"),
    };
    [text(Number::Owner), text(Number::OwnerGroup)]
}

#[test]
fn v4_attr_15_names_of_the_domain_are_taken_from_every_caller() {
    let named = NamedBench::new();
    let file = named.bench.file(b"file", 0o644);
    for how in [Sys, Kerberos] {
        named.give(&file, b"7", b"8");
        let owner = Attribute::Owner(b"alice@EXAMPLE.ORG");
        assert_eq!(named.set(how, &file, &[owner]), Status::Ok);
        assert_eq!(named.owners(Sys, &file), ["1000", "8"]);
        // The group of the user's name.
        let group = Attribute::OwnerGroup(b"alice@example.org");
        assert_eq!(named.set(how, &file, &[group]), Status::Ok);
        assert_eq!(named.owners(Sys, &file), ["1000", "3000"]);
        let numbers = [Attribute::Owner(b"4000"), Attribute::OwnerGroup(b"0")];
        assert_eq!(named.set(how, &file, &numbers), Status::Ok);
        assert_eq!(named.owners(Sys, &file), ["4000", "0"]);
    }
    let root = named.bench.walk("/export");
    let both = [
        Attribute::Owner(b"alice@example.org"),
        Attribute::OwnerGroup(b"staff@example.org"),
    ];
    let mut values = [0; 256];
    let given = Attributes::build(&both, &mut values).unwrap();
    let make = create(NewObject::Directory, b"folder", given);
    assert_eq!(named.status(Kerberos, &[put(&root), make]), Status::Ok);
    let open = Operation::Open(OpenOperation {
        sequence: 0,
        access: share::READ,
        deny: 0,
        owner: StateOwner {
            client: 0,
            owner: BoundedBytes(b"me"),
        },
        create: Some(CreateMode::Unchecked(given)),
        claim: OpenClaim::Name(b"new"),
    });
    assert_eq!(named.status(Kerberos, &[put(&root), open]), Status::Ok);
    for name in ["/export/folder", "/export/new"] {
        let made = named.bench.walk(name);
        assert_eq!(named.owners(Sys, &made), ["1000", "2000"], "{name}");
    }
}

#[test]
fn v4_attr_15_who_is_unknown_is_no_owner_and_nothing_is_set() {
    let named = NamedBench::new();
    let file = named.bench.file(b"file", 0o644);
    let root = named.bench.walk("/export");
    for how in [Sys, Kerberos] {
        for owner in [
            &b"mallory@example.org"[..],
            b"staff@example.org",
            b"alice@other.example",
            b"alice",
            b"@example.org",
            b"alice@",
            b"01@example.org",
            b"-1",
            b"nobody-at-all@example.org",
        ] {
            let set = [Attribute::Mode(0o600), Attribute::Owner(owner)];
            assert_eq!(named.set(how, &file, &set), Status::BadOwner, "{owner:?}");
            let mut values = [0; 256];
            let given = Attributes::build(&set, &mut values).unwrap();
            let make = create(NewObject::Directory, b"folder", given);
            assert_eq!(
                named.status(how, &[put(&root), make]),
                Status::BadOwner,
                "{owner:?}"
            );
        }
        let set = [Attribute::OwnerGroup(b"bob@example.org")];
        assert_eq!(named.set(how, &file, &set), Status::BadOwner);
    }
    let mode = named.bench.getattr(&file, Bitmap::of(&[Number::Mode]));
    assert_eq!(mode.attribute(Number::Mode), Attribute::Mode(0o644));
    assert!(named.bench.try_walk("/export/folder").is_err());
}

#[test]
fn v4_attr_14_and_v4_attr_15_names_are_told_to_callers_with_kerberos_only() {
    let named = NamedBench::new();
    let file = named.bench.file(b"file", 0o644);
    for (numbers, names) in [
        (["1000", "2000"], ["alice@Example.org", "staff@Example.org"]),
        (["1001", "3000"], ["bob@Example.org", "alice@Example.org"]),
        (["77", "78"], ["77", "78"]),
        (["1000", "78"], ["alice@Example.org", "78"]),
    ] {
        named.give(&file, numbers[0].as_bytes(), numbers[1].as_bytes());
        assert_eq!(named.owners(Sys, &file), numbers);
        assert_eq!(named.owners(Kerberos, &file), names);
        assert_eq!(named.owners(Sys, &file), numbers, "now that they are known");
    }
    let folder = named.bench.walk("/");
    assert_eq!(named.owners(Sys, &folder), ["0", "0"]);
    assert_eq!(
        named.owners(Kerberos, &folder),
        ["root@Example.org", "root@Example.org"]
    );
}

#[test]
fn v4_attr_15_listings_have_names() {
    let named = NamedBench::new();
    let expected: Vec<_> = (0..40)
        .map(|index| {
            let name = format!("file{index}");
            let file = named.bench.file(name.as_bytes(), 0o644);
            let owner = (990 + index).to_string();
            named.give(&file, owner.as_bytes(), b"2000");
            owner
        })
        .collect();
    let root = named.bench.walk("/export");
    let owners = |how, handle: &[u8]| {
        let results = named.run(how, &[put(handle), Operation::Readdir(list(OWNERS))]);
        let OperationResults::Readdir(Ok(listing)) = results.last() else {
            panic!("{results:?}")
        };
        let entries = listing.entries.iter();
        let mut owners: Vec<_> = entries.map(|entry| texts(&entry.attributes)).collect();
        owners.sort();
        owners
    };
    let mut numbers: Vec<_> = (expected.iter())
        .map(|owner| [owner.clone(), "2000".to_owned()])
        .collect();
    numbers.sort();
    assert_eq!(owners(Sys, &root), numbers);
    let mut names: Vec<_> = (expected.iter())
        .map(|owner| {
            let owner = match &**owner {
                "1000" => "alice@Example.org",
                "1001" => "bob@Example.org",
                owner => owner,
            };
            [owner.to_owned(), "staff@Example.org".to_owned()]
        })
        .collect();
    names.sort();
    assert_eq!(owners(Kerberos, &root), names);
    let top = named.bench.walk("/");
    let both = ["root@Example.org", "root@Example.org"].map(str::to_owned);
    assert_eq!(owners(Kerberos, &top), [both]);
    assert_eq!(owners(Sys, &top), [["0", "0"].map(str::to_owned)]);
}

/// An entry that grants reading.
fn allow(flags: u32, who: &[u8]) -> AccessControlEntry<'_> {
    AccessControlEntry {
        kind: 0,
        flags,
        mask: ace_mask::READ_DATA,
        who,
    }
}

#[test]
fn v4_attr_25_entries_of_lists_have_names() {
    let named = NamedBench::new();
    let file = named.bench.file(b"file", 0o644);
    let list = |user, group| {
        [
            allow(0, b"OWNER@"),
            allow(0, user),
            allow(ace_flags::GROUP, b"GROUP@"),
            allow(ace_flags::GROUP, group),
            allow(0, b"EVERYONE@"),
        ]
    };
    let set = |how, entries: &[AccessControlEntry<'_>]| {
        named.set(how, &file, &[Attribute::Acl(Array::new(entries))])
    };
    let shown = |how| {
        let wanted = Operation::Getattr(Bitmap::of(&[Number::Acl]));
        let results = named.run(how, &[put(&file), wanted]);
        let Attribute::Acl(list) = results.attribute(Number::Acl) else {
            panic!("no list")
        };
        let special = |who: &&str| !["OWNER@", "GROUP@", "EVERYONE@"].contains(who);
        let all: Vec<_> = list.iter().collect();
        let texts = all.iter().map(|one| std::str::from_utf8(one.who).unwrap());
        let mut texts: Vec<_> = texts.filter(special).map(str::to_owned).collect();
        texts.dedup();
        texts
    };
    for how in [Sys, Kerberos] {
        assert_eq!(set(how, &list(b"66", b"67")), Status::Ok);
        assert_eq!(shown(Kerberos), ["66", "67"]);
        // One name is a user's and a group's.
        let both = list(b"alice@example.org", b"alice@EXAMPLE.org");
        assert_eq!(set(how, &both), Status::Ok);
        assert_eq!(shown(Sys), ["1000", "3000"]);
        assert_eq!(shown(Kerberos), ["alice@Example.org"]);
        for unknown in [
            list(b"mallory@example.org", b"67"),
            list(b"66", b"bob@example.org"),
            list(b"alice@other.example", b"67"),
        ] {
            assert_eq!(set(how, &unknown), Status::BadOwner);
        }
        assert_eq!(shown(Sys), ["1000", "3000"], "nothing is set");
    }
}

#[test]
fn v4_attr_15_what_owners_mean_is_compared() {
    let named = NamedBench::new();
    let file = named.bench.file(b"file", 0o644);
    named.give(&file, b"1000", b"2000");
    let [one, other] = [&b"66"[..], b"alice@example.org"].map(|who| {
        [
            allow(0, b"OWNER@"),
            allow(0, who),
            allow(ace_flags::GROUP, b"GROUP@"),
            allow(0, b"EVERYONE@"),
        ]
    });
    let wanted = Operation::Getattr(Bitmap::of(&[Number::Acl]));
    assert_eq!(
        named.set(Sys, &file, &[Attribute::Acl(Array::new(&other))]),
        Status::Ok
    );
    for how in [Sys, Kerberos] {
        let told = named.run(how, &[put(&file), wanted]);
        let cross = named.run(
            if how == Sys { Kerberos } else { Sys },
            &[put(&file), wanted],
        );
        for (attributes, is_same) in [
            (vec![Attribute::Owner(b"1000")], true),
            (vec![Attribute::Owner(b"alice@EXAMPLE.org")], true),
            (vec![Attribute::Owner(b"bob@example.org")], false),
            (vec![Attribute::Owner(b"mallory@example.org")], false),
            (vec![Attribute::Owner(b"alice@other.example")], false),
            (vec![Attribute::OwnerGroup(b"staff@example.org")], true),
            (vec![Attribute::OwnerGroup(b"alice@example.org")], false),
            (
                vec![
                    Attribute::Mode(0o444),
                    Attribute::Owner(b"alice@example.org"),
                    Attribute::OwnerGroup(b"2000"),
                ],
                true,
            ),
            (
                vec![
                    Attribute::Mode(0o400),
                    Attribute::Owner(b"alice@example.org"),
                ],
                false,
            ),
            (vec![told.attribute(Number::Acl)], true),
            (vec![cross.attribute(Number::Acl)], true),
            (vec![Attribute::Acl(Array::new(&one))], false),
        ] {
            let mut values = [0; 2048];
            let given = Attributes::build(&attributes, &mut values).unwrap();
            let (verify, nverify) = match is_same {
                true => (Status::Ok, Status::Same),
                false => (Status::NotSame, Status::Ok),
            };
            let status = |operation| named.status(how, &[put(&file), operation]);
            assert_eq!(
                status(Operation::Verify(given)),
                verify,
                "{how:?} {attributes:?}"
            );
            assert_eq!(
                status(Operation::Nverify(given)),
                nverify,
                "{how:?} {attributes:?}"
            );
        }
    }
}

#[test]
fn v4_attr_15_a_slow_name_service_delays_who_waits_for_it_and_nobody_else() {
    let named = NamedBench::new();
    let file = named.bench.file(b"file", 0o644);
    named.give(&file, b"1000", b"2000");
    assert_eq!(named.owners(Kerberos, &file)[0], "alice@Example.org");
    let mut values = [0; 256];
    let both = [
        Attribute::Mode(0o600),
        Attribute::Owner(b"slow@example.org"),
    ];
    let given = Attributes::build(&both, &mut values).unwrap();
    let operations = [named.bench.next_sequence(), put(&file), set(given)];
    let message = named.bench.compound_message(&operations);
    let results = named.bench.results_after(&message, || {
        let (numbers, names) = (named.owners(Sys, &file), named.owners(Kerberos, &file));
        assert_eq!(numbers, ["1000", "2000"]);
        assert_eq!(names, ["alice@Example.org", "staff@Example.org"]);
        let bob = [Attribute::Owner(b"bob@example.org")];
        assert_eq!(named.set(Kerberos, &file, &bob), Status::Ok);
        assert_eq!(named.owners(Kerberos, &file)[0], "bob@Example.org");
        named.clock.turn(named.clock.now() + Duration::from_secs(5));
    });
    assert_eq!(results.status(), Status::Delay);
    let mode = named.bench.getattr(&file, Bitmap::of(&[Number::Mode]));
    assert_eq!(mode.attribute(Number::Mode), Attribute::Mode(0o644));
    assert_eq!(named.owners(Sys, &file)[0], "1001");
    named.gate.open();
    assert_eq!(named.set(Sys, &file, &both), Status::Ok);
    assert_eq!(named.owners(Sys, &file)[0], "4000");
}
