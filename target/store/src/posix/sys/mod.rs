//! The system calls that no library wraps safely. All `unsafe` of the posix store stands here.
//!
//! | module | what it owns |
//! | --- | --- |
//! | `groups` | the host's user database |
//! | `handles` | the kernel's file handles, identities of file systems, permission by descriptor |
//! | `identity` | acting on a caller's behalf, on the calling thread alone |

pub mod groups;
pub mod handles;
pub mod identity;
