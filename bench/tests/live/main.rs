//! A running service whose configuration changes, as its clients see it.

mod dead_peers;
mod drain;
mod exports;
mod folders;
mod interrupted_load;
mod listeners;
mod load;
mod pauses;
mod rest;
mod running;
mod slow;
