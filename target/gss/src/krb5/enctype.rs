//! Encryption types.

/// An encryption type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Enctype {
    /// 20, RFC 8009.
    Aes256Sha384,
    /// 19, RFC 8009.
    Aes128Sha256,
    /// 18, RFC 3962.
    Aes256Sha1,
    /// 17, RFC 3962.
    Aes128Sha1,
}

impl Enctype {
    /// All, best first.
    pub const ALL: [Self; 4] = [
        Self::Aes256Sha384,
        Self::Aes128Sha256,
        Self::Aes256Sha1,
        Self::Aes128Sha1,
    ];

    /// The assigned number.
    #[must_use]
    pub const fn number(self) -> i32 {
        match self {
            Self::Aes128Sha1 => 17,
            Self::Aes256Sha1 => 18,
            Self::Aes128Sha256 => 19,
            Self::Aes256Sha384 => 20,
        }
    }

    /// By its assigned number.
    #[must_use]
    pub fn from_number(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.number() == number)
    }

    /// The name in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aes128Sha1 => "aes128-sha1",
            Self::Aes256Sha1 => "aes256-sha1",
            Self::Aes128Sha256 => "aes128-sha2",
            Self::Aes256Sha384 => "aes256-sha2",
        }
    }

    /// By its name in the configuration.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }

    /// Bytes of a key.
    #[must_use]
    pub const fn key_length(self) -> usize {
        match self {
            Self::Aes128Sha1 | Self::Aes128Sha256 => 16,
            Self::Aes256Sha1 | Self::Aes256Sha384 => 32,
        }
    }

    /// Bytes of a checksum.
    #[must_use]
    pub const fn mac_length(self) -> usize {
        match self {
            Self::Aes128Sha1 | Self::Aes256Sha1 => 12,
            Self::Aes128Sha256 => 16,
            Self::Aes256Sha384 => 24,
        }
    }
}
