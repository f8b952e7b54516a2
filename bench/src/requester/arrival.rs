//! Classification of received messages, before they are processed.

use millrace_wire::rpc::MessageType;
use millrace_wire::rpcrdma::version2::claimed_direction;
use millrace_wire::rpcrdma::{Body, Fault, FirstWords, Header, Optional, Refusal, Rules, Version};

use super::reply::{AnswerBody, ReplyMessage};

/// A message from the server.
pub(super) enum Arrival<'a> {
    /// It claims to answer a message of ours.
    Answer(ReplyMessage<'a>),
    /// A call of the server's.
    Call(Header<'a>),
    /// A call of the server's that cannot be used. In version one only an inline message could say
    /// that it is a call, behind lists that cannot be read.
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
            Err(Fault::Refuse { words, refusal })
                if rules.versions.serves(Version::Two)
                    && claimed_direction(message, &words) == Some(MessageType::Call) =>
            {
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
        Self::Answer(ReplyMessage { header, body })
    }
}
