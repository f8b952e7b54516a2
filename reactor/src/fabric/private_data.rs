//! Private data of connection setup.

use std::ops::Deref;

/// The most bytes of private data that a connection request or answer may carry for the application
/// (RFC 6581 section 6: 512 less the four bytes of connection data).
pub const PRIVATE_DATA_MAX: usize = 508;

/// Private data of a connection request or answer: at most [`PRIVATE_DATA_MAX`] bytes, on the heap,
/// since events of the data path are moved far more often than connections are made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrivateData(Box<[u8]>);

/// More private data than [`PRIVATE_DATA_MAX`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} bytes of private data, at most {PRIVATE_DATA_MAX} have room")]
pub struct PrivateDataLength(pub usize);

impl PrivateData {
    /// No private data.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }
}

impl Deref for PrivateData {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl TryFrom<&[u8]> for PrivateData {
    type Error = PrivateDataLength;

    fn try_from(bytes: &[u8]) -> Result<Self, PrivateDataLength> {
        if bytes.len() > PRIVATE_DATA_MAX {
            return Err(PrivateDataLength(bytes.len()));
        }
        Ok(Self(bytes.into()))
    }
}

/// # Panics
/// If there are more bytes than [`PRIVATE_DATA_MAX`].
impl FromIterator<u8> for PrivateData {
    fn from_iter<I: IntoIterator<Item = u8>>(bytes: I) -> Self {
        let bytes: Box<[u8]> = bytes.into_iter().take(PRIVATE_DATA_MAX + 1).collect();
        assert!(bytes.len() <= PRIVATE_DATA_MAX, "private data has a limit");
        Self(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_holds() {
        let bytes = [7; PRIVATE_DATA_MAX + 1];
        assert_eq!(
            PrivateData::try_from(&bytes[..]),
            Err(PrivateDataLength(509))
        );
        let most = PrivateData::try_from(&bytes[1..]).unwrap();
        assert_eq!(most.len(), PRIVATE_DATA_MAX);
        assert_eq!(most, bytes[1..].iter().copied().collect());
        assert!(PrivateData::new().is_empty());
    }
}
