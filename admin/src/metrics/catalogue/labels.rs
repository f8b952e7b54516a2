//! The labels of metrics, and the values they may have.

use crate::metrics::Label;

macro_rules! labels {
    ($($constant:ident = $name:literal $meaning:literal [$($value:literal),*];)*) => {
        $(
            #[doc = concat!("`", $name, "`: ", $meaning)]
            pub static $constant: Label = Label {
                name: $name,
                meaning: $meaning,
                values: &[$($value),*],
            };
        )*
    };
}

labels! {
    CORE = "core" "The core that the reactor is pinned to; `-` if not pinned." [];
    SOURCE = "source" "The source of work." ["fabric", "records", "tasks", "store"];
    PAGE_SIZE = "page_size" "Bytes of a page." [];
    CLASS = "class" "The size class of buffers." ["control", "medium", "large"];
    RESOURCE = "resource" "The resource that was short." ["send_queue", "reply_buffer", "exposure"];
    PROVIDER = "provider" "The provider that carries connections." ["iwarp", "verbs", "tcp"];
    LISTENER = "listener" "The listener: the provider's, that of RPC over TCP, or the API's."
        ["iwarp", "tcp", "admin"];
    REFUSAL = "reason" "The reason: the connection setup failed, or there were too many connections."
        ["setup", "full"];
    CLOSING = "reason"
        "The cause: this side, the peer, a Terminate message of either side, a timeout, the network; for TCP also a peer that violated the protocol or was too slow, and eviction for another client."
        ["local", "peer", "terminate_received", "terminate_sent", "timed_out", "network", "ended",
         "misbehaved", "evicted"];
    CAUSE = "cause" "The reason for throttling calls or lowering credits."
        ["client_limit", "export_limit", "share", "pool_pressure", "exposures"];
    VERSION = "version" "The version of RPC-over-RDMA." ["1", "2"];
    DIRECTION = "direction" "From the server's point of view." ["in", "out"];
    MESSAGE = "type" "The kind of message."
        ["call", "long_call", "optional", "reverse_reply", "reverse_call", "reply", "long_reply"];
    ERROR = "error" "The error in the answer, or `dropped`."
        ["version", "chunk", "bad_xdr", "cannot_reply", "invalid_procedure", "invalid_option",
         "dropped"];
    DONE = "outcome" "Whether a reply was waiting for it." ["awaited", "stray"];
    OPERATION = "operation" "The operation of the work request." ["send", "write", "read", "receive"];
    FAILURE = "status" "The status of the failed work request."
        ["flushed", "remote_access", "local_length", "no_reads"];
    CALL = "call" "The kind of system call." ["receive", "send", "ready"];
    DEVICE = "device" "The RDMA device, by the kernel's name." [];
    TRANSPORT = "transport" "The device's network." ["InfiniBand", "RoCE", "iWARP"];
    FIRMWARE = "firmware" "The version of the device's firmware; empty if not reported." [];
    MEMORY_NODE = "memory_node" "The device's memory (NUMA) node; `-` if the machine has only one." [];
    PORT = "port" "The device's port, from 1 on." [];
    PORT_STATE = "state" "The state reported by the port." [];
    DEVICE_EVENT = "event" "The event."
        ["device_fatal", "port_active", "port_error", "addresses_changed", "queue_pair_error",
         "completion_queue_error", "shared_receive_queue", "other"];
    QUEUE = "queue" "Sends (including Writes and Reads), or receives." ["send", "receive"];
    PROGRAM = "program" "The RPC program." ["nfs", "nfs4", "mount"];
    PROCEDURE = "procedure" "The procedure, in lower case."
        ["null", "getattr", "setattr", "lookup", "access", "readlink", "read", "write", "create",
         "mkdir", "symlink", "mknod", "remove", "rmdir", "rename", "link", "readdir",
         "readdirplus", "fsstat", "fsinfo", "pathconf", "commit", "compound", "mnt", "dump", "umnt",
         "umntall", "export"];
    GSS_SERVICE = "service" "How calls under Kerberos are secured." ["krb5", "krb5i", "krb5p"];
    GSS_FAILURE = "reason" "Why the context was not created."
        ["token", "mechanism", "clock", "expired", "key", "enctype", "keytab", "no_context",
         "unavailable", "other"];
    GSS_END = "why" "Why a context has ended."
        ["destroyed", "expired", "idle", "evicted", "flushed", "abandoned"];
    GSS_REFUSAL = "reason"
        "The reason: an unknown handle or wrong checksum (RPCSEC_GSS_CREDPROBLEM), an expired context or sequence number (RPCSEC_GSS_CTXPROBLEM), a malformed credential or verifier, or damaged arguments."
        ["credential", "context", "malformed", "body"];
    GSS_DROP = "reason" "The sequence number was below the window, or seen before."
        ["old", "seen"];
    SIZE = "size"
        "Bytes of a READ or WRITE: at most 4 KiB, 64 KiB, 1 MiB; `none` for all other calls and for failed ones."
        ["le_4k", "le_64k", "le_1m", "none"];
    STATUS = "status" "The status of the answer, by its name in RFC 1813 in lower case."
        ["perm", "noent", "io", "nxio", "acces", "exist", "xdev", "nodev", "notdir", "isdir",
         "inval", "fbig", "nospc", "rofs", "mlink", "nametoolong", "notempty", "dquot", "stale",
         "remote", "badhandle", "not_sync", "bad_cookie", "notsupp", "toosmall", "serverfault",
         "badtype", "jukebox"];
    NFS4_OPERATION = "operation" "The operation of NFS version 4, by its name in RFC 8881, 7862 or 8276 in lower case; `other` for those that are not served."
        [];
    NFS4_STATUS = "status" "The status of the operation, by its name in RFC 8881, 7862 or 8276 in lower case."
        [];
    REJECTION = "reason" "The reason why no procedure was reached, or its answer not sent."
        ["not_a_call", "rpc_mismatch", "auth_error", "program_unavailable", "program_mismatch",
         "procedure_unavailable", "garbage_arguments", "not_admitted", "too_large"];
    REPLAY = "outcome"
        "The call was executed, answered from the cache, or dropped because too many repetitions of it wait."
        ["new", "replayed", "dropped"];
    EVICTION = "reason" "The cache was full, or the reply too old." ["full", "age"];
    STORE_CLASS = "class"
        "The operation: read, reserve and finish a write, operations on names and attributes, make writes durable."
        ["read", "write", "metadata", "commit"];
    READ_WAY = "way" "The source: the device, bypassing the page cache; the page cache; the device through the page cache; a Ceph cluster."
        ["direct", "cached", "buffered", "cluster"];
    WRITE_WAY = "way" "The destination: the device, bypassing the page cache; the page cache; a Ceph cluster."
        ["direct", "buffered", "cluster"];
    JOB_STATE = "state" "Running on a thread, or queued." ["running", "queued"];
    TRANSFER = "operation" "The direction of file data." ["read", "write"];
    EXPORT_CALL = "call" "Calls that read file data, that wrote file data, and all others."
        ["read", "write", "other"];
    CHANGE = "outcome"
        "Applied; no difference; a dry run; the configuration had changed in the meantime; invalid; it would take away what is in use; the service could not apply it; the file could not be written."
        ["applied", "unchanged", "tried", "stale", "invalid", "in_use", "not_applied", "not_written"];
    RELOAD = "outcome" "Whether the file was read and applied." ["ok", "failed"];
    EXPORT = "export" "The path of the export." [];
    CLIENT = "client"
        "The client's address; `other` for all clients without a series of their own (`admin.client_series`), and for clients that have left."
        [];
    CLIENT_CLASS = "class"
        "The networks of the first entry of `limits` that applies to the client, joined by commas: of more than eight the first, and how many more. `other` for clients without an entry, and for those of entries after the 64th."
        [];
    RELEASE = "version" "The version of millraced." [];
    PROFILE = "profile" "The build profile." ["debug", "release"];
    RUSTC = "rustc" "The version of the compiler." [];
}
