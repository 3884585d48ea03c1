//! The managers: state machines that know facts and notes, and never each other.

pub mod api;
pub mod containers;
pub mod cri;
pub mod images;
pub mod metrics;
pub mod node;
pub mod offline;
pub mod pods;
#[cfg(test)]
pub(crate) mod sample;
pub mod server;
pub mod volumes;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Managers {
    pub(crate) sources: pods::sources::Sources,
    pub(crate) workers: pods::workers::Workers,
    pub(crate) runtime: pods::runtime::Runtime,
    pub(crate) status: pods::status::Status,
    pub(crate) status_sync: pods::status_sync::StatusSync,
    pub(crate) mirror: pods::mirror::Mirror,
    pub(crate) pleg: pods::pleg::Pleg,
    pub(crate) housekeeping: pods::housekeeping::Housekeeping,
    pub(crate) services: containers::services::Services,
    pub(crate) pull: images::pull::Pull,
    pub(crate) volumes: volumes::Volumes,
    pub(crate) runtime_status: node::runtime_status::RuntimeStatus,
    pub(crate) certificates: node::certificates::Certificates,
    pub(crate) node_object: node::node_object::NodeObject,
    pub(crate) lease: node::lease::Lease,
    pub(crate) iptables: node::iptables::Iptables,
    pub(crate) pod_cidr: node::pod_cidr::PodCidr,
    pub(crate) event_sender: node::event_sender::EventSender,
    pub(crate) events: node::events::Events,
    pub(crate) offline: offline::Offline,
    pub(crate) server: server::Server,
}
