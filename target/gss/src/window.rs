//! The window of sequence numbers of a context.
