//! Attributes as received.

use super::{Attribute, AttributeNumber, Bitmap, MaskedMode, ModeWithUmask};
use crate::nfs4::acl::AccessControlList;
use crate::nfs4::types::TimeToSet;
use crate::xdr::{Decode, Decoder, Error, Result};

/// Attributes with their values (`fattr4`). The values are not decoded yet: the mask is checked
/// first, as an unsupported attribute has a status of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Attributes<'a> {
    /// Which attributes there are.
    pub mask: Bitmap,
    /// Their values, in ascending order (`attrlist4`).
    pub values: &'a [u8],
}

impl<'a> Attributes<'a> {
    /// No attributes.
    pub const NONE: Self = Self {
        mask: Bitmap::EMPTY,
        values: &[],
    };

    /// The values, in ascending order. After an error, and after the last value, there are no more.
    pub fn iter(&self) -> AttributeValues<'a> {
        AttributeValues {
            left: self.mask,
            has_ended: false,
            input: Decoder::new(self.values),
        }
    }

    /// The value of one attribute.
    ///
    /// # Errors
    /// As [`AttributeValues`], for those up to that attribute.
    pub fn get(&self, number: AttributeNumber) -> Result<Option<Attribute<'a>>> {
        if !self.mask.has(number) {
            return Ok(None);
        }
        let found = self.iter().find(|one| {
            one.as_ref()
                .map_or(true, |attribute| attribute.number() == number)
        });
        found.transpose()
    }
}

impl<'a> IntoIterator for &Attributes<'a> {
    type Item = Result<Attribute<'a>>;
    type IntoIter = AttributeValues<'a>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a> Decode<'a> for Attributes<'a> {
    fn decode(input: &mut Decoder<'a>) -> Result<Self> {
        Ok(Self {
            mask: Decode::decode(input)?,
            values: Decode::decode(input)?,
        })
    }
}

/// The values of [`Attributes`]. [`Error::Value`]: an attribute that is not in the table, so that
/// the length of its value is unknown, a value that is invalid for its type, or bytes that are left
/// over.
#[derive(Clone, Copy, Debug)]
pub struct AttributeValues<'a> {
    left: Bitmap,
    has_ended: bool,
    input: Decoder<'a>,
}

impl<'a> AttributeValues<'a> {
    fn step(&mut self) -> Result<Option<Attribute<'a>>> {
        let Some(number) = self.left.iter().next() else {
            // Numbers above those that are kept come last.
            return match self.input.remaining() {
                0 if !self.left.has_unknown() => Ok(None),
                _ => Err(Error::Value),
            };
        };
        let mut this = Bitmap::EMPTY;
        this.insert(number);
        self.left = self.left.without(&this);
        let number = AttributeNumber::from_number(number).ok_or(Error::Value)?;
        Attribute::decode_value(number, &mut self.input).map(Some)
    }
}

impl<'a> Iterator for AttributeValues<'a> {
    type Item = Result<Attribute<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        let next = self.step();
        self.has_ended = !matches!(next, Ok(Some(_)));
        next.transpose()
    }
}

/// What SETATTR, CREATE and OPEN set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SettableAttributes<'a> {
    /// Size in bytes.
    pub size: Option<u64>,
    /// Access control list.
    pub acl: Option<AccessControlList<'a>>,
    /// Permission bits.
    pub mode: Option<u32>,
    /// Some permission bits.
    pub masked_mode: Option<MaskedMode>,
    /// Permission bits of a new object and the mask of the process (RFC 8275).
    pub mode_with_umask: Option<ModeWithUmask>,
    /// Owner.
    pub owner: Option<&'a [u8]>,
    /// Group.
    pub group: Option<&'a [u8]>,
    /// Last read.
    pub accessed: Option<TimeToSet>,
    /// Last change of the data.
    pub modified: Option<TimeToSet>,
    /// Creation.
    pub created: Option<super::super::Timestamp>,
}

impl<'a> SettableAttributes<'a> {
    /// Reads the values. The mask must have been checked before: an attribute that is not in
    /// [`AttributeNumber::SETTABLE`] is [`Error::Value`] here.
    ///
    /// # Errors
    /// As [`AttributeValues`]: the arguments are malformed.
    pub fn decode(attributes: &Attributes<'a>) -> Result<Self> {
        let mut found = Self::default();
        for attribute in attributes {
            match attribute? {
                Attribute::Size(size) => found.size = Some(size),
                Attribute::Acl(acl) => found.acl = Some(acl),
                Attribute::Mode(mode) => found.mode = Some(mode),
                Attribute::ModeSetMasked(mode) => found.masked_mode = Some(mode),
                Attribute::ModeUmask(mode) => found.mode_with_umask = Some(mode),
                Attribute::Owner(owner) => found.owner = Some(owner),
                Attribute::OwnerGroup(group) => found.group = Some(group),
                Attribute::TimeAccessSet(time) => found.accessed = Some(time),
                Attribute::TimeModifySet(time) => found.modified = Some(time),
                Attribute::TimeCreate(time) => found.created = Some(time),
                _ => return Err(Error::Value),
            }
        }
        Ok(found)
    }
}
