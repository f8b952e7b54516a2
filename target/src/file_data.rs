//! What programs that move data of files have in common.

use millrace_store as store;
use millrace_wire::nfs3 as wire;

use crate::access::Security;

/// Most bytes of one READ or WRITE.
pub const TRANSFER_MAX: u32 = 1 << 20;

/// Most bytes of one READ or WRITE with integrity or privacy: the whole message is in one buffer.
const PROTECTED_TRANSFER_MAX: u32 = TRANSFER_MAX - (64 << 10);

/// Most bytes of one READ or WRITE of calls that are secured so.
pub(crate) const fn largest_transfer(security: Security) -> u32 {
    match security {
        Security::None | Security::Sys | Security::Krb5 => TRANSFER_MAX,
        Security::Krb5i | Security::Krb5p => PROTECTED_TRANSFER_MAX,
    }
}

/// How durable a write has to be, as the store knows it.
pub(crate) fn stability(from: wire::Stability) -> store::Stability {
    match from {
        wire::Stability::Unstable => store::Stability::Unstable,
        wire::Stability::DataSync => store::Stability::DataSync,
        wire::Stability::FileSync => store::Stability::FileSync,
    }
}

/// How durable a write is, as the wire has it.
pub(crate) fn stability_to(from: store::Stability) -> wire::Stability {
    match from {
        store::Stability::Unstable => wire::Stability::Unstable,
        store::Stability::DataSync => wire::Stability::DataSync,
        store::Stability::FileSync => wire::Stability::FileSync,
    }
}
