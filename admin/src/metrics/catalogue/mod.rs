//! Every metric there is: name, kind, unit, labels, meaning and use.
//!
//! The reference page, the dashboard and the checks of alert rules are made from this table
//! ([`super::reference`]), and a scrape of a busy service is compared with it.

mod configuration;
mod connections;
mod exports;
mod fabric;
mod folders;
mod gss;
pub mod labels;
mod memory;
mod nfs4;
mod process;
mod reactors;
mod rpc;
mod rpcrdma;
mod verbs;

use super::Family;

pub use configuration::*;
pub use connections::*;
pub use exports::*;
pub use fabric::*;
pub use folders::*;
pub use gss::*;
pub use memory::*;
pub use nfs4::*;
pub use process::*;
pub use reactors::*;
pub use rpc::*;
pub use rpcrdma::*;
pub use verbs::*;

/// Families about one subject.
#[derive(Debug)]
pub struct Subject {
    /// The heading in the reference.
    pub title: &'static str,
    /// The families, in an order that reads well.
    pub families: &'static [&'static Family],
}

/// All subjects, in the order of the reference.
pub static SUBJECTS: &[&Subject] = &[
    &REACTORS,
    &MEMORY,
    &CONNECTIONS_AND_CLIENTS,
    &CLIENT_SERIES,
    &CREDITS_AND_LIMITS,
    &RPC_OVER_RDMA,
    &FABRIC,
    &VERBS,
    &PROGRAMS,
    &CLIENT_STATE,
    &KERBEROS,
    &STORES,
    &EXPORTS,
    &FOLDERS,
    &CONFIGURATION,
    &PROCESS,
];

/// All families.
pub fn all() -> impl Iterator<Item = &'static Family> {
    SUBJECTS
        .iter()
        .flat_map(|subject| subject.families.iter().copied())
}

/// Declares the families of a subject: `CONSTANT = Kind "name" in "unit" [LABELS] "help" for
/// "use";`, and `absent "why"` before the end where a scrape of a busy service may lack it.
macro_rules! families {
    (
        $(#[$doc:meta])*
        $subject:ident = $title:literal;
        $($constant:ident = $kind:ident $name:literal in $unit:literal [$($label:ident),*]
            $help:literal for $purpose:literal $(absent $absent:literal)?;)*
    ) => {
        $(
            #[doc = concat!("`", $name, "`: ", $help)]
            pub static $constant: $crate::metrics::Family = $crate::metrics::Family {
                name: $name,
                kind: $crate::metrics::Kind::$kind,
                unit: $unit,
                help: $help,
                purpose: $purpose,
                labels: &[$(&$crate::metrics::catalogue::labels::$label),*],
                absent: $crate::metrics::catalogue::optional!($($absent)?),
            };
        )*

        $(#[$doc])*
        pub static $subject: $crate::metrics::catalogue::Subject =
            $crate::metrics::catalogue::Subject { title: $title, families: &[$(&$constant),*] };
    };
}

macro_rules! optional {
    () => {
        None
    };
    ($text:literal) => {
        Some($text)
    };
}

use {families, optional};
