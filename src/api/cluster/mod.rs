//! Objects of a cluster that a node agent reads and writes besides its pods.

mod config;
mod csr;
mod event;
mod lease;
mod node;
mod patch;
mod service;
mod token;
mod watch;

pub use config::{ConfigMap, Secret};
pub use csr::{
    CertificateSigningRequest, CertificateSigningRequestCondition, CertificateSigningRequestSpec,
    CertificateSigningRequestStatus,
};
pub use event::{Event, EventSource, ObjectReference};
pub use lease::{Lease, LeaseSpec};
pub use node::{
    AttachedVolume, ContainerImage, DaemonEndpoint, Node, NodeAddress, NodeCondition,
    NodeDaemonEndpoints, NodeFeatures, NodeRuntimeHandler, NodeRuntimeHandlerFeatures, NodeSpec,
    NodeStatus, NodeSwapStatus, NodeSystemInfo, Taint, condition, taint_effect,
};
pub use patch::{MergeKeys, NODE_STATUS_KEYS, POD_STATUS_KEYS, merge_patch};
pub use service::{Service, ServicePort, ServiceSpec};
pub use token::{BoundObjectReference, TokenRequest, TokenRequestSpec, TokenRequestStatus};
pub use watch::{ApiStatus, List, OnlyMeta, OnlyStatus, WatchKind, WatchLine, kind_of_line};

crate::meta::named!(
    Node,
    Service,
    Lease,
    Event,
    ConfigMap,
    Secret,
    CertificateSigningRequest,
    crate::pod::Pod
);
