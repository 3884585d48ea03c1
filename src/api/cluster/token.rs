//! TokenRequest of authentication.k8s.io/v1: a ServiceAccount's token for one pod.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::json::object;
use crate::time::Time;

object! {
    pub struct TokenRequest {
        "apiVersion" api_version: Box<str>,
        "kind" kind: Box<str>,
        "status" status: Option<TokenRequestStatus>,
    } always {
        "spec" spec: TokenRequestSpec,
    }

    pub struct TokenRequestSpec {
        "expirationSeconds" expiration_seconds: Option<i64>,
        "boundObjectRef" bound_object_ref: Option<BoundObjectReference>,
    } always {
        /// Empty: that of the API server.
        "audiences" audiences: Vec<Box<str>>,
    }

    /// The token is good as long as this object is there.
    pub struct BoundObjectReference {
        "kind" kind: Box<str>,
        "apiVersion" api_version: Box<str>,
        "name" name: Box<str>,
        "uid" uid: Box<str>,
    }

    pub struct TokenRequestStatus {
        /// The number of the token's seal.
        "token" token: u64,
        "expirationTimestamp" expiration_timestamp: Time,
    }
}
