//! CertificateSigningRequest of certificates.k8s.io/v1.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::json::object;
use crate::meta::ObjectMeta;

object! {
    pub struct CertificateSigningRequest {
        "apiVersion" api_version: Box<str>,
        "kind" kind: Box<str>,
        "metadata" metadata: ObjectMeta,
        "spec" spec: CertificateSigningRequestSpec,
        "status" status: CertificateSigningRequestStatus,
    }

    pub struct CertificateSigningRequestSpec {
        /// A PKCS #10 request in PEM, as base64.
        "request" request: Box<str>,
        "signerName" signer_name: Box<str>,
        "usages" usages: Vec<Box<str>>,
    }

    pub struct CertificateSigningRequestStatus {
        "conditions" conditions: Vec<CertificateSigningRequestCondition>,
        /// The chain in PEM, as base64.
        "certificate" certificate: Box<str>,
    }

    pub struct CertificateSigningRequestCondition {
        /// Approved, Denied, Failed
        "type" type_: Box<str>,
        "status" status: Box<str>,
        "reason" reason: Box<str>,
        "message" message: Box<str>,
    }
}
