//! The Millrace service: NFS over RPC-over-RDMA.
