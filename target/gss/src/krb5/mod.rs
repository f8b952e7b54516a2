//! Tokens of Kerberos (RFC 4121) with the encryption types of RFC 3962 and RFC 8009.

mod cipher;
mod derive;
mod enctype;
mod header;
mod mac;
mod mic;
mod protection;
pub(crate) mod random;
#[cfg(test)]
mod tests;
mod unwrap;
mod wrap;

use std::ops::Range;

use thiserror::Error;

pub use enctype::Enctype;
pub use mic::MicParts;
pub use protection::{ContextKeys, Protection, Side};
pub use unwrap::Unwrapping;
pub use wrap::Wrapping;

/// A token is not what it must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the token is damaged")]
pub struct Damaged;

/// How far a token is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// There is more to do.
    More,
    /// The result stands in this range of the buffer: plaintext, or token.
    Done(Range<usize>),
}
