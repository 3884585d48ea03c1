//! Event of core/v1.

use alloc::boxed::Box;

use crate::json::object;
use crate::meta::ObjectMeta;
use crate::time::Time;

object! {
    pub struct Event {
        "apiVersion" api_version: Box<str>,
        "kind" kind: Box<str>,
        "reason" reason: Box<str>,
        "message" message: Box<str>,
        "firstTimestamp" first_timestamp: Time,
        "lastTimestamp" last_timestamp: Time,
        "count" count: i32,
        /// Normal or Warning.
        "type" type_: Box<str>,
    } always {
        "metadata" metadata: ObjectMeta,
        "involvedObject" involved_object: ObjectReference,
        "source" source: EventSource,
        "eventTime" event_time: Option<Time>,
        "reportingComponent" reporting_component: Box<str>,
        "reportingInstance" reporting_instance: Box<str>,
    }

    pub struct EventSource {
        "component" component: Box<str>,
        "host" host: Box<str>,
    }

    pub struct ObjectReference {
        "kind" kind: Box<str>,
        "namespace" namespace: Box<str>,
        "name" name: Box<str>,
        "uid" uid: Box<str>,
        "apiVersion" api_version: Box<str>,
        "resourceVersion" resource_version: Box<str>,
        /// `spec.containers{name}`
        "fieldPath" field_path: Box<str>,
    }
}
