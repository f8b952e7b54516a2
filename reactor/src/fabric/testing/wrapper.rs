//! Providers that wrap another one.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{OwnedFd, RawFd};
use std::time::Instant;

use millrace_mempool::Buffer;

use crate::fabric::forward::with_methods;
use crate::fabric::{
    Access, AdoptError, ConnectParameters, ControlPath, DataPath, Event, ExposeError, Exposure,
    Incoming, Invalidation, Key, ListenerId, PostError, Provider, QueuePairId, QueuePairLimits,
    Revoked, Slices, WorkRequest,
};

/// Generates [`Wrapper`] from the methods of both traits, each of which calls the inner provider,
/// and implements [`Provider`] for every wrapper.
macro_rules! wrapper {
    ($($face:ident {
        $(fn $read:ident(&self $(, $read_name:ident: $read_type:ty)*) -> $read_result:ty;)*
        changing
        $(fn $name:ident(&mut self $(, $argument:ident: $type:ty)*) $(-> $result:ty)?;)*
    })*) => {
        /// A provider that wraps another one: every method forwards to it, unless the wrapper
        /// overrides it.
        #[allow(clippy::result_large_err, clippy::missing_errors_doc)] // As in `DataPath`.
        pub trait Wrapper {
            /// The inner provider.
            fn inner(&self) -> &dyn Provider;
            /// The same, to change it.
            fn inner_mut(&mut self) -> &mut dyn Provider;
            $(
                $(
                    #[doc = concat!("As in [`", stringify!($face), "`].")]
                    fn $read(&self $(, $read_name: $read_type)*) -> $read_result {
                        self.inner().$read($($read_name),*)
                    }
                )*
                $(
                    #[doc = concat!("As in [`", stringify!($face), "`].")]
                    fn $name(&mut self $(, $argument: $type)*) $(-> $result)? {
                        self.inner_mut().$name($($argument),*)
                    }
                )*
            )*
        }

        $(
            impl<W: Wrapper> $face for W {
                $(
                    fn $read(&self $(, $read_name: $read_type)*) -> $read_result {
                        Wrapper::$read(self $(, $read_name)*)
                    }
                )*
                $(
                    fn $name(&mut self $(, $argument: $type)*) $(-> $result)? {
                        Wrapper::$name(self $(, $argument)*)
                    }
                )*
            }
        )*
    };
}

with_methods!(wrapper);
