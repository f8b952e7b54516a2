//! Major status codes of GSS-API (RFC 2744 3.9.1), as results of context creation carry them.

/// Completed.
pub const COMPLETE: u32 = 0;
/// Another token of the client is needed.
pub const CONTINUE_NEEDED: u32 = 1;
/// The mechanism is not served.
pub const BAD_MECH: u32 = 1 << 16;
/// The client has no valid credentials.
pub const NO_CRED: u32 = 7 << 16;
/// The context to continue is unknown.
pub const NO_CONTEXT: u32 = 8 << 16;
/// The token is malformed.
pub const DEFECTIVE_TOKEN: u32 = 9 << 16;
/// The ticket has ended.
pub const CREDENTIALS_EXPIRED: u32 = 11 << 16;
/// Anything else.
pub const FAILURE: u32 = 13 << 16;
/// No resources now; later perhaps.
pub const UNAVAILABLE: u32 = 16 << 16;
