//! Kubernetes, kubelet-config and CRI types: parse and format, no behaviour.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

#[allow(clippy::all, clippy::pedantic, missing_docs)] // generated
pub mod cri;
