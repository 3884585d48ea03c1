//! ConfigMap and Secret of core/v1: what pods take their configuration from.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

use crate::json::object;
use crate::meta::ObjectMeta;

object! {
    pub struct ConfigMap {
        "metadata" metadata: ObjectMeta,
        /// An object that never changes again is not watched.
        "immutable" immutable: Option<bool>,
        "data" data: BTreeMap<Box<str>, Box<str>>,
        /// In base64. No key is in `data` too.
        "binaryData" binary_data: BTreeMap<Box<str>, Box<str>>,
    }

    pub struct Secret {
        "metadata" metadata: ObjectMeta,
        "immutable" immutable: Option<bool>,
        /// Opaque, kubernetes.io/dockerconfigjson, ...
        "type" type_: Box<str>,
        /// The number of the seal of each value, which the door of the API server has put in the place of its base64.
        "data" data: BTreeMap<Box<str>, u64>,
    }
}
