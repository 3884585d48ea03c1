//! The pods of this node: where they come from, what the runtime shows of them, how each lives and ends.

pub mod admit;
pub mod housekeeping;
pub mod mirror;
pub mod plan;
pub mod pleg;
pub mod policy;
mod requests;
pub mod runtime;
pub mod sources;
pub mod status;
pub mod status_plan;
pub mod status_sync;
pub mod view;
pub mod workers;
