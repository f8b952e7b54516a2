//! The methods of both traits, for types that forward them.

/// Passes all methods of [`DataPath`](super::DataPath) and of [`ControlPath`](super::ControlPath)
/// to a macro: of each trait those by shared reference first. The types are those in scope at the
/// place of use.
macro_rules! with_methods {
    ($generate:ident) => {
        $generate! {
            DataPath {
                fn read_slices(&self, queue_pair: QueuePairId) -> usize;
                fn send_room(&self, queue_pair: QueuePairId) -> usize;
                fn wake_descriptor(&self) -> Option<RawFd>;
                fn next_deadline(&self) -> Option<Instant>;

                changing
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
                fn poll(&mut self, now: Instant, events: &mut Vec<Event>) -> usize;
                fn flush(&mut self, now: Instant) -> usize;
                fn arm(&mut self) -> bool;
            }
            ControlPath {
                fn name(&self) -> &'static str;
                fn remote_invalidation(&self) -> Invalidation;
                fn exposure_slices(&self) -> usize;
                fn listener_address(&self, listener: ListenerId) -> Option<SocketAddr>;
                fn listener_socket(&self, listener: ListenerId) -> io::Result<OwnedFd>;
                fn connections(&self) -> usize;
                fn local_address(&self, queue_pair: QueuePairId) -> Option<SocketAddr>;
                fn device_name(&self, queue_pair: QueuePairId) -> Option<String>;

                changing
                fn listen(
                    &mut self, address: SocketAddr, limits: QueuePairLimits, hand_over: bool
                ) -> io::Result<ListenerId>;
                fn listen_on(
                    &mut self, socket: OwnedFd, limits: QueuePairLimits, hand_over: bool
                ) -> io::Result<ListenerId>;
                fn limit_listener(&mut self, listener: ListenerId, limits: QueuePairLimits);
                fn stop_listening(&mut self, listener: ListenerId);
                fn adopt(&mut self, incoming: Incoming, now: Instant) -> Result<(), AdoptError>;
                fn connect(
                    &mut self, address: SocketAddr, parameters: ConnectParameters, now: Instant
                ) -> io::Result<QueuePairId>;
                fn accept(
                    &mut self, queue_pair: QueuePairId, parameters: ConnectParameters
                ) -> Result<(), PostError>;
                fn reject(&mut self, queue_pair: QueuePairId, private_data: &[u8]);
                fn deepen_receives(&mut self, queue_pair: QueuePairId, receive_depth: u32);
                fn limit_reads(&mut self, queue_pair: QueuePairId, reads: u16);
                fn close(&mut self, queue_pair: QueuePairId);
                fn abort(&mut self, queue_pair: QueuePairId);
            }
        }
    };
}

pub(super) use with_methods;
