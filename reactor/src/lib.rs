//! The pinned polling loop of one core, and the provider-neutral RDMA [`fabric`].

pub mod completion;
pub mod fabric;
