//! The program `millraced`, started as an operator would.

#[path = "../support/landlock.rs"]
mod landlock;
#[path = "../support/millraced.rs"]
mod millraced;
#[path = "../support/tcp_client.rs"]
mod tcp_client;

mod config;
mod devices;
mod folders;
mod hardened;
mod log;
mod manager;
mod rights;
mod start;
mod tls;
