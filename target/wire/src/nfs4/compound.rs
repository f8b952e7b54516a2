//! COMPOUND and CB_COMPOUND: sequences of operations (RFC 8881 sections 16.2 and 20).

use core::marker::PhantomData;

use super::types::{HasStatus, OwnerBytes};
use super::{CallbackOperation, CallbackResults, Operation, OperationResults, OperationStatus};
use crate::xdr::{Decode, Decoder, Encode, Encoder, Error, Result, xdr_struct};

/// The number under which an undefined operation is answered (OP_ILLEGAL, OP_CB_ILLEGAL).
pub const OP_ILLEGAL: u32 = 10044;

/// An operation with arguments that do not decode: the server answers
/// [`BadXdr`](OperationStatus::BadXdr) for it, and the results before it remain valid (RFC 8881
/// section 15.1.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedOperation {
    /// The number to answer under; [`OP_ILLEGAL`] if not even the number is there.
    pub number: u32,
    /// Why it does not decode.
    pub error: Error,
}

/// An operation of a kind of COMPOUND.
pub trait CompoundOperation<'a>: Sized {
    /// Reads number and arguments. An operation that is not served, or that the minor version does
    /// not define, ends behind its number.
    ///
    /// # Errors
    /// The arguments do not decode.
    fn decode_operation(
        minor_version: u32,
        input: &mut Decoder<'a>,
    ) -> core::result::Result<Self, MalformedOperation>;

    /// Number and status of the answer to an operation that is not served or not defined.
    fn refusal(&self) -> Option<(u32, OperationStatus)>;

    /// The number of the operation.
    fn number(&self) -> u32;
}

xdr_struct! {
    /// What arguments of COMPOUND begin with.
    pub struct CompoundHeader<'a> {
        /// Any bytes of the client's, returned in the reply.
        pub tag: OwnerBytes<'a>,
        /// Minor version.
        pub minor_version: u32,
        /// Operations that follow.
        pub operations: u32,
    }
}

xdr_struct! {
    /// What arguments of CB_COMPOUND begin with.
    pub struct CallbackHeader<'a> {
        /// Any bytes of the server's, returned in the reply.
        pub tag: OwnerBytes<'a>,
        /// Minor version.
        pub minor_version: u32,
        /// Minor version 0 only; else 0.
        pub identifier: u32,
        /// Operations that follow.
        pub operations: u32,
    }
}

xdr_struct! {
    /// What results of COMPOUND and CB_COMPOUND begin with.
    pub struct CompoundReplyHeader<'a> {
        /// Status of the last operation.
        pub status: OperationStatus,
        /// The tag of the arguments.
        pub tag: OwnerBytes<'a>,
        /// Results that follow.
        pub results: u32,
    }
}

/// Reads operations one by one, so that each can be executed before the next is decoded. It ends
/// behind the first that cannot be executed: as many as the header counts need not be there.
///
/// ```
/// # use millrace_wire::{nfs4::{Compound, CompoundHeader, Operation, OperationReader}, xdr::*};
/// # let mut bytes = [0; 512];
/// # let call = Compound { minor_version: 1, operations: &[Operation::Putrootfh(())], ..Compound::default() };
/// # to_bytes(&call, &mut bytes).unwrap();
/// let mut input = Decoder::new(&bytes);
/// let header = CompoundHeader::decode(&mut input).unwrap();
/// let mut operations = OperationReader::new(input, header.minor_version, header.operations);
/// assert_eq!(operations.next(), Some(Ok(Operation::Putrootfh(()))));
/// assert_eq!(operations.next(), None);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct OperationReader<'a, O = Operation<'a>> {
    input: Decoder<'a>,
    minor_version: u32,
    left: u32,
    operation: PhantomData<O>,
}

/// Reads the operations of CB_COMPOUND.
pub type CallbackReader<'a> = OperationReader<'a, CallbackOperation<'a>>;

impl<'a, O: CompoundOperation<'a>> OperationReader<'a, O> {
    /// A reader of as many operations as the header counts, of which `input` has the first next.
    #[must_use]
    pub const fn new(input: Decoder<'a>, minor_version: u32, operations: u32) -> Self {
        Self {
            input,
            minor_version,
            left: operations,
            operation: PhantomData,
        }
    }

    /// The input behind the operations read so far. After the last one, [`Decoder::finish`] tells
    /// whether each chunk belonged to an operation.
    #[must_use]
    pub const fn input(&self) -> &Decoder<'a> {
        &self.input
    }
}

impl<'a, O: CompoundOperation<'a>> Iterator for OperationReader<'a, O> {
    type Item = core::result::Result<O, MalformedOperation>;

    #[inline(always)] // What it returns is large to move.
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let operation = O::decode_operation(self.minor_version, &mut self.input);
        let goes_on = matches!(&operation, Ok(operation) if operation.refusal().is_none());
        if !goes_on {
            self.left = 0;
        }
        Some(operation)
    }
}

/// Reads results one by one. It ends behind the first that failed or does not decode.
#[derive(Clone, Copy, Debug)]
pub struct ResultsReader<'a, R = OperationResults<'a>> {
    input: Decoder<'a>,
    left: u32,
    results: PhantomData<R>,
}

/// Reads the results of CB_COMPOUND.
pub type CallbackResultsReader<'a> = ResultsReader<'a, CallbackResults<'a>>;

impl<'a, R: Decode<'a> + HasStatus> ResultsReader<'a, R> {
    /// A reader of as many results as the header counts, of which `input` has the first next.
    #[must_use]
    pub const fn new(input: Decoder<'a>, results: u32) -> Self {
        Self {
            input,
            left: results,
            results: PhantomData,
        }
    }

    /// The input behind the results read so far.
    #[must_use]
    pub const fn input(&self) -> &Decoder<'a> {
        &self.input
    }
}

impl<'a, R: Decode<'a> + HasStatus> Iterator for ResultsReader<'a, R> {
    type Item = Result<R>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let results = R::decode(&mut self.input);
        let goes_on = matches!(&results, Ok(results) if results.status() == OperationStatus::Ok);
        if !goes_on {
            self.left = 0;
        }
        Some(results)
    }
}

/// Arguments of COMPOUND to encode.
#[derive(Clone, Copy, Debug, Default)]
pub struct Compound<'a> {
    /// Any bytes.
    pub tag: OwnerBytes<'a>,
    /// Minor version.
    pub minor_version: u32,
    /// The operations.
    pub operations: &'a [Operation<'a>],
}

impl Encode for Compound<'_> {
    fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        CompoundHeader {
            tag: self.tag,
            minor_version: self.minor_version,
            operations: u32::try_from(self.operations.len()).map_err(|_| Error::TooLong)?,
        }
        .encode(out)?;
        let mut operations = self.operations.iter();
        operations.try_for_each(|operation| operation.encode(out))
    }
}

/// Arguments of CB_COMPOUND to encode, with an empty tag.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallbackCompound<'a> {
    /// Minor version.
    pub minor_version: u32,
    /// The operations.
    pub operations: &'a [CallbackOperation<'a>],
}

impl Encode for CallbackCompound<'_> {
    fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        CallbackHeader {
            tag: OwnerBytes::default(),
            minor_version: self.minor_version,
            identifier: 0,
            operations: u32::try_from(self.operations.len()).map_err(|_| Error::TooLong)?,
        }
        .encode(out)?;
        let mut operations = self.operations.iter();
        operations.try_for_each(|operation| operation.encode(out))
    }
}

/// Writes results of COMPOUND or CB_COMPOUND one by one. Status and count are patched as results
/// come, so the reply is complete after each.
#[derive(Debug)]
pub struct CompoundReplyWriter<'e, 'b> {
    out: &'e mut Encoder<'b>,
    status_at: usize,
    count_at: usize,
    status: OperationStatus,
    count: u32,
}

impl<'e, 'b> CompoundReplyWriter<'e, 'b> {
    /// Begins a reply with the status OK and no results.
    ///
    /// # Errors
    /// [`Error::Full`]; [`Error::TooLong`] for a tag of more than 1,024 bytes.
    pub fn begin(out: &'e mut Encoder<'b>, tag: OwnerBytes<'_>) -> Result<Self> {
        let status_at = out.position();
        let status = OperationStatus::Ok;
        CompoundReplyHeader {
            status,
            tag,
            results: 0,
        }
        .encode(out)?;
        let count_at = out.position() - 4;
        Ok(Self {
            out,
            status_at,
            count_at,
            status,
            count: 0,
        })
    }

    /// Status of the last result.
    #[must_use]
    pub const fn status(&self) -> OperationStatus {
        self.status
    }

    /// Results so far.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// Bytes written so far, and room left for results.
    #[must_use]
    pub const fn encoder(&self) -> &Encoder<'b> {
        self.out
    }

    /// Sets the status of a reply without results, as for a minor version that is not served.
    ///
    /// # Errors
    /// None in practice: the word is there.
    pub fn refuse(&mut self, status: OperationStatus) -> Result<()> {
        self.status = status;
        self.out.patch_u32(self.status_at, status.number())
    }

    /// Appends results.
    ///
    /// # Errors
    /// As [`push_with`](Self::push_with).
    pub fn push<R: Encode + HasStatus>(&mut self, results: &R) -> Result<()> {
        self.append(|out| results.encode(out).map(|()| results.status()))
    }

    /// Appends results under an operation's number: `fill` writes the status and what follows it,
    /// and returns the status.
    ///
    /// # Errors
    /// What `fill` returns, [`Error::Full`]: then nothing was appended, and a status that takes
    /// less room may be.
    pub fn push_with(
        &mut self,
        number: u32,
        fill: impl FnOnce(&mut Encoder<'_>) -> Result<OperationStatus>,
    ) -> Result<()> {
        self.append(|out| {
            out.u32(number)?;
            fill(out)
        })
    }

    fn append(
        &mut self,
        fill: impl FnOnce(&mut Encoder<'_>) -> Result<OperationStatus>,
    ) -> Result<()> {
        let start = self.out.position();
        match fill(self.out) {
            Ok(status) => {
                self.count += 1;
                self.out.patch_u32(self.count_at, self.count)?;
                self.refuse(status)
            }
            Err(error) => {
                self.out.rewind(start);
                Err(error)
            }
        }
    }
}
