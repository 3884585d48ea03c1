//! Images: present or pulled, by the pod's pull policy.

pub mod pull;
