//! An enum of all kinds of providers.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{OwnedFd, RawFd};
use std::time::Instant;

use millrace_mempool::Buffer;

use super::forward::with_methods;
use super::iwarp::Iwarp;
#[cfg(feature = "verbs")]
use super::verbs::Verbs;
use super::{
    Access, AdoptError, ConnectParameters, ControlPath, DataPath, Event, ExposeError, Exposure,
    Incoming, Invalidation, Key, ListenerId, PostError, QueuePairId, QueuePairLimits, Revoked,
    Slices, WorkRequest,
};

/// A provider of any kind. Calls are resolved at compile time: one comparison instead of a table of
/// methods, and the compiler can inline them.
pub enum AnyProvider {
    /// Software iWARP over TCP.
    Iwarp(Box<Iwarp>),
    /// RDMA devices.
    #[cfg(feature = "verbs")]
    Verbs(Box<Verbs>),
    /// A provider of a test.
    #[cfg(feature = "testing")]
    Dynamic(Box<dyn super::Provider>),
}

/// Forwards every method of both traits to the contained provider.
macro_rules! any_provider {
    ($($face:ident {
        $(fn $read:ident(&self $(, $read_name:ident: $read_type:ty)*) -> $read_result:ty;)*
        changing
        $(fn $name:ident(&mut self $(, $argument:ident: $type:ty)*) $(-> $result:ty)?;)*
    })*) => {
        $(
            impl $face for AnyProvider {
                $(
                    #[inline]
                    fn $read(&self $(, $read_name: $read_type)*) -> $read_result {
                        match self {
                            Self::Iwarp(provider) => provider.$read($($read_name),*),
                            #[cfg(feature = "verbs")]
                            Self::Verbs(provider) => provider.$read($($read_name),*),
                            #[cfg(feature = "testing")]
                            Self::Dynamic(provider) => provider.$read($($read_name),*),
                        }
                    }
                )*
                $(
                    #[inline]
                    fn $name(&mut self $(, $argument: $type)*) $(-> $result)? {
                        match self {
                            Self::Iwarp(provider) => provider.$name($($argument),*),
                            #[cfg(feature = "verbs")]
                            Self::Verbs(provider) => provider.$name($($argument),*),
                            #[cfg(feature = "testing")]
                            Self::Dynamic(provider) => provider.$name($($argument),*),
                        }
                    }
                )*
            }
        )*
    };
}

with_methods!(any_provider);
