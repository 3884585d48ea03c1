//! A fake behind each door of the agent: the runtime, the disk, the kernel, the helper pool, the API server,
//! and the clients of its ports.

pub mod api;
pub mod disk;
pub mod helper;
pub mod kernel;
pub mod listen;
pub mod manifests;
pub mod offline;
pub mod pki;
pub mod rpc;
pub mod runtime;
