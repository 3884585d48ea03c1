//! The pods of this node: where they come from, what the runtime shows of them, how each lives and ends.

pub mod policy;
#[cfg(test)]
pub(crate) mod sample;
pub mod view;
