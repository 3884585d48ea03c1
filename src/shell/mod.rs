//! The outside: clocks, descriptors, processes. The reactor turns what happens there into events.

pub mod boot;
pub mod clock;
pub mod crash;
pub mod doors;
pub mod figures;
pub mod log;
mod memory;
pub mod mounts;
pub mod offline;
pub mod reactor;
#[cfg(test)]
pub(crate) mod scratch;
pub mod tape;
pub mod terminal;
pub mod turns;
pub mod vault;
pub mod yaml;
