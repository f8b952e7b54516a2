//! Every event and error of the loopback fabric.

mod access;
mod connect;
mod end;
mod faults;
mod support;
mod work;
