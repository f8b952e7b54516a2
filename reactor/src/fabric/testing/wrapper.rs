//! Providers that stand before another one.

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

/// Makes [`Wrapper`] of the methods of both faces, each of which asks the inner provider, and
/// a [`Provider`] of every wrapper.
macro_rules! wrapper {
    ($($face:ident {
        $(fn $read:ident(&self $(, $read_name:ident: $read_type:ty)*) -> $read_result:ty;)*
        changing
        $(fn $name:ident(&mut self $(, $argument:ident: $type:ty)*) $(-> $result:ty)?;)*
    })*) => {
        /// A provider that stands before another one: every method passes on what is asked,
        /// until the wrapper has one of its own.
        #[allow(clippy::result_large_err, clippy::missing_errors_doc)] // As in `DataPath`.
        pub trait Wrapper {
            /// The provider behind.
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
