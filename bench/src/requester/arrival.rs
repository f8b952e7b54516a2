//! What a message is, before anything is done about it.

use millrace_wire::rpc::MessageType;
use millrace_wire::rpcrdma::{
    Body, FIRST_WORDS, Fault, FirstWords, Header, Optional, Refusal, Rules, Version, version2,
};

use super::reply::{Answer, AnswerBody};

/// A message from the server.
pub(super) enum Arrival<'a> {
    /// It claims to answer a message of ours.
    Answer(Answer<'a>),
    /// A call of the server's.
    Call(Header<'a>),
    /// A call of the server's that cannot be used.
    FaultyCall(FirstWords, Refusal),
    /// A message of an extension.
    Optional(FirstWords, Optional<'a>),
    /// Nothing that could be used: no faulty reply and no faulty error is ever answered (RFC 8166
    /// section 4.5), and what cannot be told from one is treated as one.
    Stray,
}

impl<'a> Arrival<'a> {
    /// Reads a message. `rules` let in the version in use, and errors of any.
    pub fn read(message: &'a [u8], rules: &Rules) -> Self {
        let header = match Header::parse(message, rules) {
            Ok(header) => header,
            Err(Fault::Refuse { words, refusal }) if is_call(message, &words, rules) => {
                return Self::FaultyCall(words, refusal);
            }
            Err(_) => return Self::Stray,
        };
        // XIDs and credits of the two directions have nothing to do with each other.
        let direction = header.direction();
        let body = match header.body {
            Body::Message { .. } | Body::NoMessage { .. }
                if direction == Some(MessageType::Call) =>
            {
                return Self::Call(header);
            }
            Body::Message { lists, message, .. } => {
                if direction.is_none() || header.check_xid(message, rules).is_err() {
                    return Self::Stray;
                }
                AnswerBody::Inline {
                    lists,
                    length: message.len(),
                }
            }
            Body::NoMessage { lists } => AnswerBody::Long { lists },
            Body::Error(error) => AnswerBody::Error(error.into()),
            Body::Optional(optional) => return Self::Optional(header.words, optional),
            Body::Done => return Self::Stray,
        };
        Self::Answer(Answer {
            header,
            xid: header.words.xid,
            credits: header.words.credits,
            body,
        })
    }
}

/// Whether a faulty message says that it is a call. In version one only an inline message could,
/// behind lists that cannot be read.
fn is_call(message: &[u8], words: &FirstWords, rules: &Rules) -> bool {
    let kind = version2::Kind::from_number(words.kind);
    let direction = message
        .get(FIRST_WORDS..)
        .and_then(|rest| rest.first_chunk());
    rules.versions.find(words.version) == Some(Version::Two)
        && kind.is_some_and(|kind| kind != version2::Kind::Error)
        && direction.map(|word| u32::from_be_bytes(*word)) == Some(MessageType::Call.number())
}
