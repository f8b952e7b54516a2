//! Providers that stand before another one.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{OwnedFd, RawFd};
use std::time::Instant;

use millrace_mempool::Buffer;

use crate::fabric::{
    Access, ConnectParameters, Event, ExposeError, Exposure, Incoming, Invalidation, Key,
    ListenerId, PostError, Provider, QueuePairId, QueuePairLimits, Revoked, Slices, WorkRequest,
};

/// Makes [`Wrapper`] of the methods of [`Provider`], each of which asks the inner provider, and
/// a [`Provider`] of every wrapper.
macro_rules! wrapper {
    (
        $(fn $read:ident(&self $(, $read_name:ident: $read_type:ty)*) -> $read_result:ty;)*
        changing
        $(fn $name:ident(&mut self $(, $argument:ident: $type:ty)*) $(-> $result:ty)?;)*
    ) => {
        /// A provider that stands before another one: every method passes on what is asked,
        /// until the wrapper has one of its own.
        #[allow(clippy::result_large_err, clippy::missing_errors_doc)] // As in `Provider`.
        pub trait Wrapper {
            /// The provider behind.
            fn inner(&self) -> &dyn Provider;
            /// The same, to change it.
            fn inner_mut(&mut self) -> &mut dyn Provider;
            $(
                /// As in [`Provider`].
                fn $read(&self $(, $read_name: $read_type)*) -> $read_result {
                    self.inner().$read($($read_name),*)
                }
            )*
            $(
                /// As in [`Provider`].
                fn $name(&mut self $(, $argument: $type)*) $(-> $result)? {
                    self.inner_mut().$name($($argument),*)
                }
            )*
        }

        impl<W: Wrapper> Provider for W {
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
    };
}

wrapper! {
    fn name(&self) -> &'static str;
    fn remote_invalidation(&self) -> Invalidation;
    fn exposure_slices(&self) -> usize;
    fn read_slices(&self, queue_pair: QueuePairId) -> usize;
    fn listener_address(&self, listener: ListenerId) -> Option<SocketAddr>;
    fn listener_socket(&self, listener: ListenerId) -> io::Result<OwnedFd>;
    fn connections(&self) -> usize;
    fn local_address(&self, queue_pair: QueuePairId) -> Option<SocketAddr>;
    fn send_room(&self, queue_pair: QueuePairId) -> usize;
    fn wake_descriptor(&self) -> Option<RawFd>;
    fn next_deadline(&self) -> Option<Instant>;

    changing
    fn listen(
        &mut self, address: SocketAddr, limits: QueuePairLimits, hand_over: bool
    ) -> io::Result<ListenerId>;
    fn adopt(&mut self, incoming: Incoming, now: Instant) -> io::Result<()>;
    fn listen_on(
        &mut self, socket: OwnedFd, limits: QueuePairLimits, hand_over: bool
    ) -> io::Result<ListenerId>;
    fn limit_listener(&mut self, listener: ListenerId, limits: QueuePairLimits);
    fn deepen_receives(&mut self, queue_pair: QueuePairId, receive_depth: u32);
    fn stop_listening(&mut self, listener: ListenerId);
    fn connect(
        &mut self, address: SocketAddr, parameters: ConnectParameters, now: Instant
    ) -> io::Result<QueuePairId>;
    fn accept(
        &mut self, queue_pair: QueuePairId, parameters: ConnectParameters
    ) -> Result<(), PostError>;
    fn reject(&mut self, queue_pair: QueuePairId, private_data: &[u8]);
    fn post_receive(
        &mut self, queue_pair: QueuePairId, buffer: Buffer
    ) -> Result<(), (PostError, Buffer)>;
    fn post(
        &mut self, queue_pair: QueuePairId, chain: &mut Vec<WorkRequest>
    ) -> Result<(), PostError>;
    fn expose(
        &mut self, queue_pair: QueuePairId, local: Slices, access: Access
    ) -> Result<Exposure, (ExposeError, Slices)>;
    fn revoke(&mut self, queue_pair: QueuePairId, key: Key) -> Revoked;
    fn limit_reads(&mut self, queue_pair: QueuePairId, reads: u16);
    fn close(&mut self, queue_pair: QueuePairId);
    fn abort(&mut self, queue_pair: QueuePairId);
    fn poll(&mut self, now: Instant, events: &mut Vec<Event>) -> usize;
    fn flush(&mut self, now: Instant) -> usize;
    fn arm(&mut self) -> bool;
}
