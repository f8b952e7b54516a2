//! The client's end of contexts of RPCSEC_GSS with given keys.

#![allow(dead_code)] // Each test binary uses a part of it.

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use millrace_gss::{
    Accepted, ContextKeys, Directory, Enctype, GssService as Contexts, Identity, Mechanism,
    Progress, Protection, Settings, Side, User,
};
use millrace_wire::rpc::{
    CallHeader, CallOutcome, CallWords, Credential, GssCredential, GssProcedure, GssService,
    IntegrityBody, OpaqueAuth, RPCSEC_GSS, ReplyHeader, privacy_token, protected_content,
};
use millrace_wire::xdr::{Decode, Decoder};

use crate::support::message::{encoded, words};

/// What accepts tokens in tests.
pub type Acceptor = Box<dyn Fn(&[u8]) -> Accepted + Send + Sync>;

struct FakeMechanism(Acceptor);

impl Mechanism for FakeMechanism {
    fn accept(&self, token: &[u8]) -> Accepted {
        (self.0)(token)
    }
}

struct NoUsers;

impl Directory for NoUsers {
    fn user(&self, _: &str, _: usize) -> std::io::Result<Option<User>> {
        Ok(None)
    }
}

/// Contexts that are made by `acceptor`.
pub fn contexts_with(settings: Settings, acceptor: Acceptor) -> Contexts {
    Contexts::with_directory(settings, FakeMechanism(acceptor), NoUsers)
}

/// Contexts that only tests make.
pub fn contexts() -> Contexts {
    contexts_with(
        Settings::default(),
        Box::new(|_| panic!("this test makes no contexts by tokens")),
    )
}

/// The keys of a context.
pub fn keys(enctype: Enctype) -> ContextKeys {
    let length = match enctype {
        Enctype::Aes256Sha384 | Enctype::Aes256Sha1 => 32,
        Enctype::Aes128Sha256 | Enctype::Aes128Sha1 => 16,
    };
    ContextKeys {
        enctype,
        key: (0..length).collect::<Vec<u8>>().into(),
        acceptor_subkey: true,
        send_sequence: 7,
    }
}

/// A user with a principal of the same number.
pub fn user(uid: u32) -> Identity {
    Identity {
        principal: format!("user{uid}@EXAMPLE.COM").into(),
        user: Some(User {
            uid,
            gid: uid,
            groups: Arc::new([]),
        }),
    }
}

/// A client that has a context.
pub struct Initiator {
    protection: Arc<Protection>,
    pub handle: Vec<u8>,
    pub sequence: Cell<u32>,
}

/// What a call is for: program, version, procedure.
pub type Called = (u32, u32, u32);

impl Initiator {
    /// Makes a context with given keys.
    pub fn new(contexts: &Contexts, identity: Identity, enctype: Enctype) -> Self {
        let keys = keys(enctype);
        let hour = Duration::from_secs(3600);
        let client = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let handle = contexts.insert(&keys, identity, hour, client).unwrap();
        Self::with(&keys, handle.as_bytes())
    }

    /// The client's end of a context.
    pub fn with(keys: &ContextKeys, handle: &[u8]) -> Self {
        Self {
            protection: Protection::new(keys, Side::Initiator).unwrap(),
            handle: handle.to_vec(),
            sequence: Cell::new(0),
        }
    }

    /// The next sequence number.
    pub fn next(&self) -> u32 {
        self.sequence.set(self.sequence.get() + 1);
        self.sequence.get()
    }

    /// A header with its verifier.
    pub fn header(&self, xid: u32, called: Called, credential: &GssCredential<'_>) -> Vec<u8> {
        let encoded_credential = encoded(credential);
        let header = CallHeader {
            xid,
            program: called.0,
            version: called.1,
            procedure: called.2,
            credential: Credential::Other(OpaqueAuth {
                flavor: RPCSEC_GSS,
                body: &encoded_credential[8..],
            }),
            verifier: OpaqueAuth::NONE,
        };
        let mut header = encoded(&header);
        header.truncate(header.len() - 8);
        let mic = self.mic(&header);
        header.extend(encoded(&OpaqueAuth::from(&mic[..])));
        header
    }

    fn mic(&self, message: &[u8]) -> Vec<u8> {
        let mut mic = vec![0; self.protection.mic_length()];
        assert_eq!(self.protection.sign(message, &mut mic), mic.len());
        mic
    }

    /// A credential of a call.
    pub fn credential(&self, service: GssService, sequence: u32) -> GssCredential<'_> {
        GssCredential {
            procedure: GssProcedure::Data,
            sequence,
            service,
            handle: &self.handle,
        }
    }

    /// A call with the next sequence number.
    pub fn call(&self, xid: u32, called: Called, service: GssService, arguments: &[u8]) -> Vec<u8> {
        let sequence = self.next();
        let header = self.header(xid, called, &self.credential(service, sequence));
        [header, self.body(service, sequence, arguments)].concat()
    }

    /// Arguments as a service has them.
    pub fn body(&self, service: GssService, sequence: u32, arguments: &[u8]) -> Vec<u8> {
        let content = [&sequence.to_be_bytes(), arguments].concat();
        match service {
            GssService::None => arguments.to_vec(),
            GssService::Integrity => encoded(&IntegrityBody {
                covered: &content,
                checksum: &self.mic(&content),
            }),
            GssService::Privacy => {
                let token = self.wrap(&content);
                let pad = &[0; 3][..token.len().wrapping_neg() % 4];
                [&words(&[token.len() as u32])[..], &token, pad].concat()
            }
        }
    }

    fn wrap(&self, content: &[u8]) -> Vec<u8> {
        let mut token = vec![0; content.len() + self.protection.wrap_overhead()];
        let prefix = Protection::WRAP_PREFIX;
        token[prefix..prefix + content.len()].copy_from_slice(content);
        let mut wrapping = self.protection.wrapping(content.len());
        while wrapping.step(&mut token, 1 << 20).unwrap() == Progress::More {}
        token
    }

    /// The results of a successful reply to the call with this number, out of their protection; or
    /// what else it is. Its verifier is checked.
    pub fn results(
        &self,
        service: GssService,
        sequence: u32,
        reply: &[u8],
    ) -> Result<Vec<u8>, ReplyHeader<'static>> {
        let mut input = Decoder::new(reply);
        let header = ReplyHeader::decode(&mut input).unwrap();
        let (verifier, status) = match header.outcome {
            CallOutcome::Accepted { verifier, status } => (verifier, status),
            CallOutcome::Denied(denied) => {
                return Err(ReplyHeader {
                    xid: header.xid,
                    outcome: CallOutcome::Denied(denied),
                });
            }
        };
        assert_eq!(verifier.flavor, RPCSEC_GSS);
        let number = sequence.to_be_bytes();
        assert!(
            self.protection.verify_mic(&number, verifier.body),
            "the verifier of {reply:02x?}"
        );
        if status != millrace_wire::rpc::Accepted::Success {
            input.finish().unwrap();
            assert_eq!(input.remaining(), 0);
            return Err(millrace_wire::rpc::answer_to(header.xid, status));
        }
        Ok(self.opened(service, sequence, &mut input))
    }

    /// What a body of the server's holds, which is all that is left.
    fn opened(&self, service: GssService, sequence: u32, input: &mut Decoder<'_>) -> Vec<u8> {
        let content = match service {
            GssService::None => return input.rest().to_vec(),
            GssService::Integrity => {
                let body = IntegrityBody::decode_all(input).unwrap();
                assert!(self.protection.verify_mic(body.covered, body.checksum));
                body.covered.to_vec()
            }
            GssService::Privacy => self.unwrap(privacy_token(input).unwrap()),
        };
        let (inner, content) = protected_content(&content).unwrap();
        assert_eq!(inner, sequence);
        content.to_vec()
    }

    /// The plain message of a call of the server's, and its sequence number. Its credential has to
    /// have this service and handle, and its verifier to be good.
    pub fn opened_call(
        &self,
        service: GssService,
        handle: &[u8],
        message: &[u8],
    ) -> (Vec<u8>, u32) {
        let mut input = Decoder::new(message);
        let words = CallWords::decode(&mut input).unwrap();
        assert_eq!(words.credential.flavor, RPCSEC_GSS);
        let credential = GssCredential::from_body(words.credential.body).unwrap();
        assert_eq!(credential.procedure, GssProcedure::Data);
        assert_eq!((credential.service, credential.handle), (service, handle));
        assert_eq!(words.verifier.flavor, RPCSEC_GSS);
        let covered = &message[..words.covered];
        assert!(self.verifies(covered, words.verifier.body), "the header");
        let arguments = self.opened(service, credential.sequence, &mut input);
        let plain = CallHeader {
            xid: words.xid,
            program: words.called.0,
            version: words.called.1,
            procedure: words.called.2,
            credential: Credential::None,
            verifier: OpaqueAuth::NONE,
        };
        let plain = [encoded(&plain), arguments].concat();
        (plain, credential.sequence)
    }

    /// The protected message of a plain reply with results to the server's call of this number.
    pub fn reply(&self, service: GssService, sequence: u32, plain: &[u8]) -> Vec<u8> {
        let mic = self.mic(&sequence.to_be_bytes());
        let verifier = encoded(&OpaqueAuth::from(&mic[..]));
        let body = match &plain[20..24] {
            [0, 0, 0, 0] => self.body(service, sequence, &plain[24..]),
            _ => plain[24..].to_vec(),
        };
        [&plain[..12], &verifier, &plain[20..24], &body].concat()
    }

    /// Whether a checksum of the server's is good.
    pub fn verifies(&self, message: &[u8], mic: &[u8]) -> bool {
        self.protection.verify_mic(message, mic)
    }

    fn unwrap(&self, token: &[u8]) -> Vec<u8> {
        let mut token = token.to_vec();
        let mut unwrapping = self.protection.unwrapping(&token).unwrap();
        loop {
            if let Progress::Done(range) = unwrapping.step(&mut token, 1 << 20).unwrap() {
                return token[range].to_vec();
            }
        }
    }
}
