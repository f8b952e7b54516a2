//! Credentials and verifiers (RFC 5531 section 8.2 and appendix A).

use arrayvec::ArrayVec;

use crate::xdr::{Decode, Decoder, Encode, Encoder, Error, Result};

/// No authentication.
pub const AUTH_NONE: u32 = 0;
/// AUTH_SYS: numbers of a user and groups of the caller's system.
pub const AUTH_SYS: u32 = 1;
/// AUTH_SHORT: a credential that the responder issued.
pub const AUTH_SHORT: u32 = 2;
/// RPCSEC_GSS (RFC 2203).
pub const RPCSEC_GSS: u32 = 6;

/// Most bytes of a credential's or verifier's body.
const MAX_BODY: usize = 400;
/// Most bytes of the machine name in AUTH_SYS.
const MAX_MACHINE: usize = 255;

/// Supplementary groups of AUTH_SYS, at most 16.
pub type Groups = ArrayVec<u32, 16>;

/// A flavor, and an opaque body whose form depends on the flavor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpaqueAuth<'a> {
    /// Flavor number.
    pub flavor: u32,
    /// Body, at most 400 bytes.
    pub body: &'a [u8],
}

impl OpaqueAuth<'_> {
    /// The empty one of flavor AUTH_NONE.
    pub const NONE: Self = Self {
        flavor: AUTH_NONE,
        body: &[],
    };
}

impl Encode for OpaqueAuth<'_> {
    fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        if self.body.len() > MAX_BODY {
            return Err(Error::TooLong);
        }
        out.u32(self.flavor)?;
        out.opaque(self.body)
    }
}

impl<'a> Decode<'a> for OpaqueAuth<'a> {
    #[inline]
    fn decode(input: &mut Decoder<'a>) -> Result<Self> {
        Ok(Self {
            flavor: input.u32()?,
            body: input.opaque(MAX_BODY)?,
        })
    }
}

/// The body of an AUTH_SYS credential (RFC 5531 appendix A).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthSys<'a> {
    /// Arbitrary number of the caller's.
    pub stamp: u32,
    /// Name of the caller's machine, at most 255 bytes.
    pub machine: &'a [u8],
    /// User.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Other groups.
    pub gids: Groups,
}

impl Encode for AuthSys<'_> {
    fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        if self.machine.len() > MAX_MACHINE {
            return Err(Error::TooLong);
        }
        out.u32(self.stamp)?;
        out.opaque(self.machine)?;
        out.u32(self.uid)?;
        out.u32(self.gid)?;
        out.u32(u32::try_from(self.gids.len()).map_err(|_| Error::TooLong)?)?;
        self.gids.iter().try_for_each(|&gid| out.u32(gid))
    }
}

impl<'a> Decode<'a> for AuthSys<'a> {
    #[inline]
    fn decode(input: &mut Decoder<'a>) -> Result<Self> {
        let stamp = input.u32()?;
        let machine = input.string(MAX_MACHINE)?;
        let [uid, gid] = input.words()?;
        let mut gids = Groups::new();
        for _ in 0..input.length(gids.capacity())? {
            gids.push(input.u32()?);
        }
        Ok(Self {
            stamp,
            machine,
            uid,
            gid,
            gids,
        })
    }
}

/// The credential of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential<'a> {
    /// AUTH_NONE. Its body is ignored.
    None,
    /// AUTH_SYS.
    Sys(AuthSys<'a>),
    /// AUTH_SYS with a body that does not decode. The call is refused with AUTH_ERROR and
    /// [`BadCredential`](super::AuthStatus::BadCredential).
    Malformed,
    /// Any other flavor.
    Other(OpaqueAuth<'a>),
}

impl Encode for Credential<'_> {
    fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        match self {
            Self::None => OpaqueAuth::NONE.encode(out),
            Self::Other(auth) => auth.encode(out),
            Self::Malformed => Err(Error::Value),
            Self::Sys(auth) => {
                out.u32(AUTH_SYS)?;
                let word = out.position();
                out.u32(0)?;
                let start = out.position();
                auth.encode(out)?;
                let length = out.position() - start;
                out.patch_u32(word, u32::try_from(length).map_err(|_| Error::TooLong)?)
            }
        }
    }
}

impl<'a> From<OpaqueAuth<'a>> for Credential<'a> {
    #[inline]
    fn from(auth: OpaqueAuth<'a>) -> Self {
        match auth.flavor {
            AUTH_NONE => Self::None,
            AUTH_SYS => {
                let mut body = Decoder::new(auth.body);
                match AuthSys::decode(&mut body) {
                    Ok(sys) if body.remaining() == 0 => Self::Sys(sys),
                    _ => Self::Malformed,
                }
            }
            _ => Self::Other(auth),
        }
    }
}

impl<'a> Decode<'a> for Credential<'a> {
    #[inline]
    fn decode(input: &mut Decoder<'a>) -> Result<Self> {
        OpaqueAuth::decode(input).map(Self::from)
    }
}
