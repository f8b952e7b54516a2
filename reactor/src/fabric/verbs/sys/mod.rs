//! The foreign libraries, made safe.
