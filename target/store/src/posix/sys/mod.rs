//! The system calls that no library wraps safely. All `unsafe` of the posix store stands here.
//!
//! | module | what it owns |
//! | --- | --- |
//! | `calls` | what changes names and attributes or makes them durable; `record` shows it to tests |
//! | `groups` | the host's user database |
//! | `handles` | the kernel's file handles, identities of file systems, permission by descriptor |
//! | `identity` | acting on a caller's behalf, on the calling thread alone |
//! | `work` | what a transfer of file data is, and what it holds on to |
//! | `ring` | transfers by a ring of the kernel's (io_uring) |
//! | `transfer` | transfers by system calls on other threads |

pub mod calls;
pub mod groups;
pub mod handles;
pub mod identity;
#[cfg(test)]
pub mod record;
pub mod ring;
pub mod transfer;
pub mod work;
