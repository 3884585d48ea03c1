//! The shell on a real `mio::Poll`, against fakes on real sockets and files, and the whole program as a process.

mod api;
mod api_ways;
mod crash;
mod disk;
mod helper;
mod helper_trouble;
mod listen;
#[path = "../../src/shell/doors/may_mount.rs"]
mod may_mount;
mod member;
mod process;
mod rpc;
#[path = "../../src/shell/scratch.rs"]
mod scratch;
mod secrets;
mod streams;
mod visitors;
mod world;
