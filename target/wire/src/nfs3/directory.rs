//! Results of READDIR and READDIRPLUS: lists of entries (RFC 1813 sections 3.3.16 and 3.3.17).

use super::types::{CookieVerifier, PostAttributes};
use super::{FileHandle, Outcome, Status};
use crate::xdr::{Decode, Decoder, Encode, Encoder, List, Result, pad, xdr_struct};

/// Results of READDIR; a failure has the directory's attributes.
pub type ReaddirResults<'a> = Outcome<DirectoryOk<'a, Name<'a>>, PostAttributes>;
/// Results of READDIRPLUS; a failure has the directory's attributes.
pub type ReaddirplusResults<'a> = Outcome<DirectoryOk<'a, NamePlus<'a>>, PostAttributes>;

xdr_struct! {
    /// An entry in READDIR's results (`entry3`).
    pub struct Name<'a> {
        /// The object's number.
        pub fileid: u64,
        /// The name.
        pub name: &'a [u8],
        /// Where to go on behind this entry.
        pub cookie: u64,
    }
}

xdr_struct! {
    /// An entry in READDIRPLUS's results (`entryplus3`).
    pub struct NamePlus<'a> {
        /// The object's number.
        pub fileid: u64,
        /// The name.
        pub name: &'a [u8],
        /// Where to go on behind this entry.
        pub cookie: u64,
        /// The object's attributes.
        pub attributes: PostAttributes,
        /// The object.
        pub handle: Option<FileHandle>,
    }
}

/// Results of READDIR and READDIRPLUS as received.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DirectoryOk<'a, E: Decode<'a>> {
    /// Attributes of the directory.
    pub attributes: PostAttributes,
    /// Verifier to send with the cookies.
    pub verifier: CookieVerifier,
    /// The entries.
    pub entries: List<'a, E>,
    /// Whether the directory ends behind the last entry.
    pub eof: bool,
}

impl<'a, E: Decode<'a>> Decode<'a> for DirectoryOk<'a, E> {
    fn decode(input: &mut Decoder<'a>) -> Result<Self> {
        Ok(Self {
            attributes: Decode::decode(input)?,
            verifier: Decode::decode(input)?,
            entries: Decode::decode(input)?,
            eof: input.bool()?,
        })
    }
}

impl<'a, E: Decode<'a> + Encode> Encode for DirectoryOk<'a, E> {
    fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        self.attributes.encode(out)?;
        self.verifier.encode(out)?;
        self.entries.encode(out)?;
        out.bool(self.eof)
    }
}

/// The size of an entry, for the limits of the arguments.
pub trait DirectoryEntry: Encode {
    /// Bytes that count against `dircount`: number, name and cookie, with the name's length word
    /// and pad.
    fn directory_bytes(&self) -> usize;
}

fn name_bytes(name: &[u8]) -> usize {
    name.len().saturating_add(8 + 4 + pad(name.len()) + 8)
}

impl DirectoryEntry for Name<'_> {
    fn directory_bytes(&self) -> usize {
        name_bytes(self.name)
    }
}

impl DirectoryEntry for NamePlus<'_> {
    fn directory_bytes(&self) -> usize {
        name_bytes(self.name)
    }
}

/// Writes successful results of READDIR or READDIRPLUS entry by entry, within the requester's
/// counts and the buffer.
///
/// ```
/// # use millrace_wire::{nfs3::{DirectoryWriter, Name}, xdr::Encoder};
/// # let mut bytes = [0; 512];
/// # let mut out = Encoder::new(&mut bytes);
/// let mut list = DirectoryWriter::readdir(&mut out, 256, None, [0; 8]).unwrap();
/// let mut end = true;
/// for cookie in 1..100 {
///     if !list.push(&Name { fileid: cookie, name: b"name", cookie }) {
///         end = false;
///         break;
///     }
/// }
/// assert_eq!(list.count(), 8);
/// list.finish(end).unwrap();
/// ```
#[derive(Debug)]
pub struct DirectoryWriter<'e, 'b> {
    out: &'e mut Encoder<'b>,
    start: usize,
    /// Bytes of the results, without their status, and with the end of the list.
    maxcount: usize,
    dircount: usize,
    directory_bytes: usize,
    count: usize,
}

/// Bytes of the end of the list and of the word for the end of the directory.
const LIST_END: usize = 8;

impl<'e, 'b> DirectoryWriter<'e, 'b> {
    /// Begins results of READDIR. `count` is that of the arguments.
    ///
    /// # Errors
    /// No room even for an empty list.
    pub fn readdir(
        out: &'e mut Encoder<'b>,
        count: u32,
        attributes: PostAttributes,
        verifier: CookieVerifier,
    ) -> Result<Self> {
        Self::readdirplus(out, u32::MAX, count, attributes, verifier)
    }

    /// Begins results of READDIRPLUS. `dircount` and `maxcount` are those of the arguments.
    ///
    /// # Errors
    /// No room even for an empty list.
    pub fn readdirplus(
        out: &'e mut Encoder<'b>,
        dircount: u32,
        maxcount: u32,
        attributes: PostAttributes,
        verifier: CookieVerifier,
    ) -> Result<Self> {
        Status::Ok.encode(out)?;
        let start = out.position();
        attributes.encode(out)?;
        verifier.encode(out)?;
        Self::entries(out, start, dircount, maxcount).ok_or(crate::xdr::Error::Full)
    }

    /// Begins a list. What `maxcount` bounds begins at `start`; without room for the end of the
    /// list there is no writer.
    pub(crate) const fn entries(
        out: &'e mut Encoder<'b>,
        start: usize,
        dircount: u32,
        maxcount: u32,
    ) -> Option<Self> {
        if out.remaining() < LIST_END {
            return None;
        }
        Some(Self {
            out,
            start,
            maxcount: maxcount as usize,
            dircount: dircount as usize,
            directory_bytes: 0,
            count: 0,
        })
    }

    /// Appends an entry if it fits. Returns whether it does. The first entry has to fit `maxcount`
    /// only, so that a small `dircount` still makes progress.
    pub fn push(&mut self, entry: &impl DirectoryEntry) -> bool {
        let directory_bytes = self.directory_bytes.saturating_add(entry.directory_bytes());
        if self.count > 0 && directory_bytes > self.dircount {
            return false;
        }
        let before = self.out.position();
        let encoded = self.out.bool(true).and_then(|()| entry.encode(self.out));
        let length = (self.out.position() - self.start).saturating_add(LIST_END);
        if encoded.is_err() || length > self.maxcount || self.out.remaining() < LIST_END {
            self.out.rewind(before);
            return false;
        }
        self.directory_bytes = directory_bytes;
        self.count += 1;
        true
    }

    /// Entries so far. If the first entry did not fit, the call fails with
    /// [`TooSmall`](Status::TooSmall): rewind the encoder to where the results began.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Ends the list.
    ///
    /// # Errors
    /// None in practice: the space is reserved.
    pub fn finish(self, eof: bool) -> Result<()> {
        self.out.bool(false)?;
        self.out.bool(eof)
    }
}
