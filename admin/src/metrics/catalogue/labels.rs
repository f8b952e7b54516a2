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
    CORE = "core" "The core that the reactor is pinned to; `-` for one that is pinned to none." [];
    SOURCE = "source" "Where work comes from." ["fabric", "records", "tasks", "store"];
    PAGE_SIZE = "page_size" "Bytes of a page." [];
    CLASS = "class" "The size class of buffers." ["control", "medium", "large"];
    RESOURCE = "resource" "What was short." ["send_queue", "reply_buffer", "exposure"];
    PROVIDER = "provider" "What carries connections." ["iwarp", "verbs", "tcp"];
    LISTENER = "listener" "Whose listener: the provider's, that of RPC over TCP, or the API's."
        ["iwarp", "tcp", "admin"];
    REFUSAL = "reason" "Why it was refused: its set-up failed, or there were too many."
        ["setup", "full"];
    CLOSING = "reason"
        "Who or what ended it: this side, the peer, an error that either side told the other, a deadline, the network; for TCP also a peer that broke the rules or was too slow, and other clients that needed the place."
        ["local", "peer", "terminate_received", "terminate_sent", "timed_out", "network", "ended",
         "misbehaved", "evicted"];
    CAUSE = "cause" "What held calls or credits back."
        ["client_limit", "export_limit", "share", "pool_pressure", "exposures"];
    VERSION = "version" "The version of RPC-over-RDMA." ["1", "2"];
    DIRECTION = "direction" "As this server sees it." ["in", "out"];
    MESSAGE = "type" "The kind of message."
        ["call", "long_call", "optional", "reverse_reply", "reverse_call", "reply", "long_reply"];
    ERROR = "error" "The error that was answered, or `dropped`."
        ["version", "chunk", "bad_xdr", "cannot_reply", "invalid_procedure", "invalid_option",
         "dropped"];
    DONE = "outcome" "Whether a reply awaited it." ["awaited", "stray"];
    OPERATION = "operation" "What the work request does." ["send", "write", "read", "receive"];
    FAILURE = "status" "How the work request failed."
        ["flushed", "remote_access", "local_length", "no_reads"];
    CALL = "call" "What the system was asked for." ["receive", "send", "ready"];
    DEVICE = "device" "The RDMA device, by the kernel's name." [];
    TRANSPORT = "transport" "The network that it speaks." ["InfiniBand", "RoCE", "iWARP"];
    FIRMWARE = "firmware" "The version of its firmware; empty where it tells none." [];
    MEMORY_NODE = "memory_node" "The memory node that it is near to; `-` where there is one only." [];
    PORT = "port" "The device's port, from 1 on." [];
    PORT_STATE = "state" "What the port says of itself." [];
    DEVICE_EVENT = "event" "What the device told."
        ["device_fatal", "port_active", "port_error", "addresses_changed", "queue_pair_error",
         "completion_queue_error", "shared_receive_queue", "other"];
    QUEUE = "queue" "Of sends (Writes and Reads among them), or of receives." ["send", "receive"];
    PROGRAM = "program" "The RPC program." ["nfs", "mount"];
    PROCEDURE = "procedure" "The procedure, in small letters."
        ["null", "getattr", "setattr", "lookup", "access", "readlink", "read", "write", "create",
         "mkdir", "symlink", "mknod", "remove", "rmdir", "rename", "link", "readdir",
         "readdirplus", "fsstat", "fsinfo", "pathconf", "commit", "mnt", "dump", "umnt",
         "umntall", "export"];
    SIZE = "size"
        "Bytes that a READ or WRITE moved: at most 4 KiB, 64 KiB, 1 MiB; `none` for all other calls and for those that failed."
        ["le_4k", "le_64k", "le_1m", "none"];
    STATUS = "status" "The status that was answered, by its name in RFC 1813 in small letters."
        ["perm", "noent", "io", "nxio", "acces", "exist", "xdev", "nodev", "notdir", "isdir",
         "inval", "fbig", "nospc", "rofs", "mlink", "nametoolong", "notempty", "dquot", "stale",
         "remote", "badhandle", "not_sync", "bad_cookie", "notsupp", "toosmall", "serverfault",
         "badtype", "jukebox"];
    REJECTION = "reason" "Why no procedure was reached, or its answer not sent."
        ["not_a_call", "rpc_mismatch", "auth_error", "program_unavailable", "program_mismatch",
         "procedure_unavailable", "garbage_arguments", "not_admitted", "too_large"];
    REPLAY = "outcome"
        "A call that was executed, one that was answered from the cache, one that was dropped because too many of its repetitions wait."
        ["new", "replayed", "dropped"];
    EVICTION = "reason" "Whether the cache was full, or the reply too old." ["full", "age"];
    STORE_CLASS = "class"
        "What the store does: read, reserve and finish a write, anything about names and attributes, make writes durable."
        ["read", "write", "metadata", "commit"];
    READ_WAY = "way" "Past the page cache, out of it, or through it from the device."
        ["direct", "cached", "buffered"];
    WRITE_WAY = "way" "Past the page cache, or into it." ["direct", "buffered"];
    JOB_STATE = "state" "Whether a thread is at it." ["running", "queued"];
    TRANSFER = "operation" "Which way file data went." ["read", "write"];
    CHANGE = "outcome"
        "It is in force; it changed nothing; it was a dry run; somebody else was faster; it cannot be; the service could not apply it; the file could not be written."
        ["applied", "unchanged", "tried", "stale", "invalid", "not_applied", "not_written"];
    RELOAD = "outcome" "Whether the file was read and what it says applied." ["ok", "failed"];
    EXPORT = "export" "The path of the export." [];
    CLIENT = "client"
        "The client's address; `other` for all that have no series of their own (`admin.client_series`), and for those that have left."
        [];
    RELEASE = "version" "The version of millraced." [];
    PROFILE = "profile" "How it was built." ["debug", "release"];
    RUSTC = "rustc" "The compiler that built it." [];
}
