//! System calls without a safe wrapper in a library. All `unsafe` of the posix store is here.
//!
//! | module | what it owns |
//! | --- | --- |
//! | `calls` | calls that change names and attributes or make them durable; `record` shows them to tests |
//! | `file_locks` | byte-range locks of open file descriptions |
//! | `groups` | the host's user database |
//! | `handles` | the kernel's file handles, identities of file systems, permission by descriptor |
//! | `identity` | acting as a caller, on the calling thread alone |
//! | `work` | a transfer of file data, and the resources that it holds |
//! | `ring` | transfers by a ring of the kernel (io_uring) |
//! | `transfer` | transfers by system calls on other threads |

pub mod calls;
pub mod file_locks;
pub mod groups;
pub mod handles;
pub mod identity;
#[cfg(test)]
pub mod record;
pub mod ring;
pub mod transfer;
pub mod work;
