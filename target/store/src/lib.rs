//! The Store trait and its stores.
