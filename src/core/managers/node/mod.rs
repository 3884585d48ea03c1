//! The node itself: the runtime's health, the events that an operator reads.

pub mod events;
pub mod runtime_status;
