//! Kubernetes, kubelet-config and CRI types: parse and format, no behaviour.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod cluster;
pub mod config;
pub mod container;
#[allow(clippy::all, clippy::pedantic, missing_docs)] // generated
pub mod cri;
pub mod defaults;
pub mod image;
pub mod json;
pub mod meta;
pub mod pod;
pub mod pod_facts;
pub mod quantity;
pub mod status;
pub mod time;
pub mod validation;
pub mod volume;
