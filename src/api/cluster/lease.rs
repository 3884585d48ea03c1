//! Lease of coordination.k8s.io/v1.

use alloc::boxed::Box;

use crate::json::object;
use crate::meta::ObjectMeta;
use crate::time::Time;

object! {
    pub struct Lease {
        "apiVersion" api_version: Box<str>,
        "kind" kind: Box<str>,
        "metadata" metadata: ObjectMeta,
        "spec" spec: LeaseSpec,
    }

    pub struct LeaseSpec {
        "holderIdentity" holder_identity: Option<Box<str>>,
        "leaseDurationSeconds" lease_duration_seconds: Option<i32>,
        "acquireTime" acquire_time: Option<Time>,
        /// With six digits of fraction.
        "renewTime" renew_time: Option<Time>,
        "leaseTransitions" lease_transitions: Option<i32>,
        "strategy" strategy: Option<Box<str>>,
        "preferredHolder" preferred_holder: Option<Box<str>>,
    }
}
