//! A fake behind each door of the agent: the runtime, the disk, the kernel, the helper pool.

pub mod runtime;
