//! The configuration: its model, its text form and its rules.
//!
//! [`parse`] turns the text of a file into a [`Config`] that follows all rules, or into
//! [`ConfigErrors`] with file, line, column, key path and accepted values. [`load`] does the same
//! for a path. [`Config::notes`] lists effects of a valid configuration that an operator may not
//! expect; the service logs them.
//!
//! Only this module uses the YAML library and searches for the line of a key.

mod access;
mod ceph;
mod compare;
mod diff;
mod edit_text;
mod error;
mod exports;
mod gateways;
mod gss;
mod hardening;
mod json;
mod locate;
mod log;
mod model;
mod network;
mod nfs4;
mod notes;
mod parse;
mod path;
mod posix;
mod raw;
mod scalar;
mod schema;
mod text_span;
mod tls;
mod units;
mod validate;
mod value;

pub use access::ReadToken;
pub use ceph::{Ceph, CephLimits};
pub use diff::{Effect, KeyChange, diff, diff_while, live_part};
pub use edit_text::edit_text;
pub use error::{ConfigError, ConfigErrors};
pub use exports::{Access, ClientLimits, Export, Limits, Squash, Store};
pub use gateways::{Gateways, is_gateway_name};
pub use gss::{ExportSecurity, Gss, GssEnctype, GssMachine};
pub use hardening::HardeningLevel;
pub use json::{JsonError, from_json, from_value};
pub use model::{
    Admin, CcpFlavor, Config, Cores, CrcPolicy, Fabric, Flow, Hardening, Hugepages, Mempool,
    PollMode, Provider, Reactors, Rpc, Rpcbind, Rpcrdma, SameXid, Switch, WindowEnd,
};
pub use network::Network;
pub use nfs4::{Delegations, Nfs4};
pub use parse::{Source, TEXT_MAX, load, load_with_source, parse, to_yaml};
pub use path::{KeyPath, Segment};
pub use posix::{CallerIdentity, DirectIo, GroupSource, MountView, Posix, StoreLimits, SyncMode};
pub use schema::{AddressText, ClientIdText, GatewayNameText, SocketText, StateidText, TagsText};
pub use tls::{ClientAuth, PlainHttp, Tls};
pub use units::{Bandwidth, ByteSize, ParseUnitError, format_duration, parse_duration};
use validate::clash;
pub use validate::{ConfigProblem, validate};
pub use value::{text_of_value, value_of_text};

#[cfg(test)]
mod tests;
