//! A fake behind each door of the agent: the runtime, the disk, the kernel, the helper pool, the API server.

pub mod api;
pub mod disk;
pub mod helper;
pub mod kernel;
pub mod manifests;
pub mod rpc;
pub mod runtime;
