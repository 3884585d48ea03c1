//! The node itself: the runtime's health, the events that an operator reads.

pub mod certificates;
pub mod event_sender;
pub mod events;
pub mod iptables;
pub mod lease;
pub mod node_object;
pub mod node_status;
pub mod pod_cidr;
pub mod runtime_status;
