//! Service of core/v1, as far as the environment of containers tells of it.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::json::object;
use crate::meta::ObjectMeta;

object! {
    pub struct Service {
        "metadata" metadata: ObjectMeta,
        "spec" spec: ServiceSpec,
    }

    pub struct ServiceSpec {
        /// `None` in words for a headless one.
        "clusterIP" cluster_ip: Box<str>,
        "ports" ports: Vec<ServicePort>,
    }

    pub struct ServicePort {
        "name" name: Box<str>,
        "protocol" protocol: Box<str>,
        "port" port: i32,
    }
}
