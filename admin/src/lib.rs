//! The management plane: configuration, metrics and the HTTP API.
