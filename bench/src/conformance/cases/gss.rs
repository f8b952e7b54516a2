//! RPCSEC_GSS as far as it shows without a ticket: credentials, handles and tokens that are none
//! (`target/wire/GSS.md`). Servers without Kerberos are asked for their refusal only.

use millrace_wire::nfs3::Procedure;
use millrace_wire::rpc::{GssProcedure, RPCSEC_GSS};

use crate::conformance::message::{GARBAGE_ARGS, accepted, nfs, parse, plain, words};
use crate::conformance::probe::Probe;
use crate::conformance::verdict::Want;
use crate::conformance::verdict::{Done, Stop, begins_with, ensure, fail_by, same, skip, word};

use super::{Question, case};

/// `auth_stat` (RFC 5531 section 9, RFC 2203 section 5.3.3.3).
const BAD_CREDENTIAL: u32 = 1;
const REJECTED_CREDENTIAL: u32 = 2;
const BAD_VERIFIER: u32 = 3;
pub(super) const CREDENTIAL_PROBLEM: u32 = 13;

/// Major statuses of GSS-API (RFC 2744 section 3.9.1).
const BAD_MECHANISM: u32 = 1 << 16;
const NO_CONTEXT: u32 = 8 << 16;

const INIT: u32 = GssProcedure::Init.number();
const CONTINUE: u32 = GssProcedure::ContinueInit.number();
const DESTROY: u32 = GssProcedure::Destroy.number();
const DATA: u32 = GssProcedure::Data.number();

/// A token of SPNEGO, which is no mechanism of NFS (RFC 2743 section 3.1).
const SPNEGO: &[u8] = &[
    0x60, 0x0a, 0x06, 0x06, 0x2b, 0x06, 0x01, 0x05, 0x05, 0x02, 0xa0, 0x00,
];

pub(super) const CASES: &[Question] = &[
    case(
        "GSS-CRED-06",
        "a server without Kerberos rejects the flavor",
        flavor,
    ),
    case(
        "GSS-CTX-13",
        "other versions of RPCSEC_GSS are rejected",
        versions,
    ),
    case(
        "GSS-CTX-02",
        "contexts are made and ended by NULL only",
        procedures,
    ),
    case(
        "GSS-CTX-03",
        "a new context has no handle and no verifier",
        creations,
    ),
    case(
        "GSS-CTX-04",
        "the argument of a creation is one token",
        arguments,
    ),
    case(
        "GSS-CTX-08",
        "a creation with an unknown handle goes on with none",
        continuations,
    ),
    case(
        "GSS-CTX-09",
        "other mechanisms are refused by their status",
        mechanisms,
    ),
    case(
        "GSS-HDL-01",
        "unknown handles are credential problems",
        handles,
    ),
    case(
        "GSS-CRED-01",
        "credentials that do not decode are bad",
        credentials,
    ),
];

/// A credential's body.
#[derive(Clone)]
pub(super) struct GssBody {
    version: u32,
    procedure: u32,
    sequence: u32,
    service: u32,
    handle: Vec<u8>,
    /// What follows it.
    rest: Vec<u8>,
}

impl GssBody {
    pub(super) fn new(procedure: u32, handle: &[u8]) -> Self {
        Self {
            version: 1,
            procedure,
            sequence: 1,
            service: 1,
            handle: handle.to_vec(),
            rest: Vec::new(),
        }
    }

    pub(super) fn numbered(self, sequence: u32) -> Self {
        Self { sequence, ..self }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let fields = words(&[self.version, self.procedure, self.sequence, self.service]);
        [fields, opaque(&self.handle), self.rest.clone()].concat()
    }
}

/// Bytes with their length and round-up.
pub(super) fn opaque(bytes: &[u8]) -> Vec<u8> {
    let padding = vec![0; bytes.len().next_multiple_of(4) - bytes.len()];
    [words(&[bytes.len() as u32]), bytes.to_vec(), padding].concat()
}

/// A call of a procedure of NFS version 3, by its number, with this credential and verifier.
pub(super) fn call(
    probe: &mut Probe,
    procedure: u32,
    (credential, verifier): (&[u8], (u32, &[u8])),
    arguments: &[u8],
) -> Vec<u8> {
    let (program, version, _) = nfs(Procedure::Null);
    [
        words(&[probe.xid(), 0, 2, program, version, procedure, RPCSEC_GSS]),
        opaque(credential),
        words(&[verifier.0]),
        opaque(verifier.1),
        arguments.to_vec(),
    ]
    .concat()
}

pub(super) const NO_VERIFIER: (u32, &[u8]) = (0, &[]);

/// The reply to a call on a connection of its own.
fn reply(probe: &mut Probe, call: &[u8]) -> Result<Vec<u8>, Stop> {
    Ok(parse(&probe.peer()?.exchange(&plain(call))?)?.message)
}

/// What is answered to such a call of NULL.
pub(super) fn answer(probe: &mut Probe, body: &GssBody, arguments: &[u8]) -> Result<Vec<u8>, Stop> {
    let call = call(
        probe,
        Procedure::Null.number(),
        (&body.bytes(), NO_VERIFIER),
        arguments,
    );
    reply(probe, &call)
}

/// Passes if a message denies its call with this `auth_stat`.
pub(super) fn denied(message: &[u8], status: u32) -> Done {
    begins_with(
        message,
        &[
            ("xid", Want::Any),
            ("mtype", Want::Is(1)),
            ("reply_stat", Want::Is(1)),
            ("reject_stat", Want::Is(1)),
            ("auth_stat", Want::Is(status)),
        ],
    )
}

/// The status of a server that does not know the flavor.
fn is_rejected(message: &[u8]) -> bool {
    denied(message, REJECTED_CREDENTIAL).is_ok()
}

/// Passes if the server takes RPCSEC_GSS, and skips otherwise.
pub(super) fn needs_gss(probe: &mut Probe) -> Done {
    let message = answer(probe, &GssBody::new(INIT, &[]), &opaque(&[]))?;
    match is_rejected(&message) {
        true => Err(skip("the server does not take RPCSEC_GSS")),
        false => Ok(()),
    }
}

/// Passes if all these credentials of NULL calls are denied with this `auth_stat`.
fn all_denied(probe: &mut Probe, bodies: &[GssBody], status: u32) -> Done {
    needs_gss(probe)?;
    for body in bodies {
        let message = answer(probe, body, &opaque(&[]))?;
        denied(&message, status)?;
    }
    Ok(())
}

/// Passes if a creation failed with this major status: without handle and token.
fn failed(message: &[u8], major: u32) -> Done {
    let (status, results) = accepted(message)?;
    ensure(
        status == 0,
        format!("accept status 0 expected, not {status}"),
    )?;
    let not = || fail_by("the results of a failed creation expected, not", results);
    // The minor status and the window may be anything.
    let [handle, found, token] = [0, 1, 4].map(|index| word(results, index));
    let (handle, token) = (handle.ok_or_else(not)?, token.ok_or_else(not)?);
    ensure(
        (handle, token) == (0, 0),
        "a handle or a token, though the creation failed",
    )?;
    same(
        "gss_major",
        &words(&[major]),
        &words(&[found.ok_or_else(not)?]),
    )
}

fn flavor(probe: &mut Probe) -> Done {
    let message = answer(probe, &GssBody::new(INIT, &[]), &opaque(&[]))?;
    if is_rejected(&message) {
        return Ok(());
    }
    accepted(&message)?;
    Err(skip("the server takes RPCSEC_GSS"))
}

fn versions(probe: &mut Probe) -> Done {
    let bodies = [0, 2, 3, u32::MAX].map(|version| GssBody {
        version,
        ..GssBody::new(INIT, &[])
    });
    all_denied(probe, &bodies, REJECTED_CREDENTIAL)
}

fn procedures(probe: &mut Probe) -> Done {
    needs_gss(probe)?;
    for procedure in [INIT, CONTINUE] {
        let body = GssBody::new(procedure, &[]).bytes();
        let call = call(
            probe,
            Procedure::Getattr.number(),
            (&body, NO_VERIFIER),
            &opaque(&[]),
        );
        denied(&reply(probe, &call)?, BAD_CREDENTIAL)?;
    }
    Ok(())
}

fn creations(probe: &mut Probe) -> Done {
    all_denied(probe, &[GssBody::new(INIT, &[7; 16])], BAD_CREDENTIAL)?;
    let body = GssBody::new(INIT, &[]).bytes();
    for verifier in [(RPCSEC_GSS, &[1; 28][..]), (1, &[])] {
        let call = call(
            probe,
            Procedure::Null.number(),
            (&body, verifier),
            &opaque(&[]),
        );
        denied(&reply(probe, &call)?, BAD_VERIFIER)?;
    }
    Ok(())
}

fn arguments(probe: &mut Probe) -> Done {
    needs_gss(probe)?;
    let excess = [opaque(SPNEGO), words(&[0])].concat();
    for arguments in [Vec::new(), words(&[8, 1]), words(&[u32::MAX, 1, 2]), excess] {
        let message = answer(probe, &GssBody::new(INIT, &[]), &arguments)?;
        let (status, _) = accepted(&message)?;
        same("accept_stat", &words(&[GARBAGE_ARGS]), &words(&[status]))?;
    }
    Ok(())
}

fn continuations(probe: &mut Probe) -> Done {
    needs_gss(probe)?;
    for handle in [&[9; 16][..], &[9; 3]] {
        let message = answer(probe, &GssBody::new(CONTINUE, handle), &opaque(SPNEGO))?;
        failed(&message, NO_CONTEXT)?;
    }
    Ok(())
}

fn mechanisms(probe: &mut Probe) -> Done {
    needs_gss(probe)?;
    let message = answer(probe, &GssBody::new(INIT, &[]), &opaque(SPNEGO))?;
    failed(&message, BAD_MECHANISM)
}

fn handles(probe: &mut Probe) -> Done {
    let bodies = [DATA, DESTROY].map(|procedure| {
        [&[][..], &[1], &[9; 16], &[9; 17], &[9; 64]].map(|handle| GssBody::new(procedure, handle))
    });
    all_denied(probe, &bodies.concat(), CREDENTIAL_PROBLEM)
}

fn credentials(probe: &mut Probe) -> Done {
    let body = GssBody::new(DATA, &[9; 16]);
    let services = [0, 4, u32::MAX].map(|service| GssBody {
        service,
        ..body.clone()
    });
    let others = [
        GssBody {
            procedure: 4,
            ..body.clone()
        },
        GssBody {
            rest: vec![0; 4],
            ..body
        },
    ];
    all_denied(probe, &[&services[..], &others].concat(), BAD_CREDENTIAL)
}
