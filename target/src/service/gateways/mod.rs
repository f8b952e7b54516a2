//! This server as one of several gateways to the same files.
//!
//! | module | what it does |
//! | --- | --- |
//! | `folder` | the records of all gateways, in the folder that they share |
//! | `secrets` | tells the others which file handles are good here |
//! | `settings` | tells the others which settings are on here |
//! | `shares` | tells the others what opens access and deny |
//! | `replies` | tells the others which changes are executed, and how they were answered |
//! | `start` | joins them: nobody grants while clients of this one may reclaim |
//! | `member` | follows the records of the others while this one serves, and stops |
//! | `take_over` | takes the place of another one |
//!
//! The rules are those of [`crate::state::GatewayRecords`].

mod folder;
mod member;
mod replies;
mod secrets;
mod settings;
mod shares;
mod start;
mod take_over;

pub use member::GatewayMember;
pub(super) use shares::ShareThreads;
pub use start::{JoiningGateway, join_gateways};
#[cfg(feature = "ceph")]
pub use start::{may_go_on, session_name};
