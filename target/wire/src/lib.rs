//! Every byte layout above RDMA: XDR, ONC RPC, RPC-over-RDMA, MOUNT and NFS.
